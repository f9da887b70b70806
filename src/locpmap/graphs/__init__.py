"""Structure of models: sites, edges, colour classes and blocks."""

from locpmap.graphs.clusters import cluster_hierarchy
from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Box, Grid, Steps, ends_of
from locpmap.graphs.volume import Volume, box_of

__all__ = ["Box", "Graph", "Grid", "Steps", "Volume", "box_of", "cluster_hierarchy", "ends_of"]
