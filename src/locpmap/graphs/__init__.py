"""Structure of models: sites, edges, colour classes and blocks."""

from locpmap.graphs.clusters import cluster_hierarchy
from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Grid, Steps, ends_of

__all__ = ["Graph", "Grid", "Steps", "cluster_hierarchy", "ends_of"]
