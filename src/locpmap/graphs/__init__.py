"""Sites, edges, colour classes and blocks: structure without numbers."""

from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Grid, Steps

__all__ = ["Graph", "Grid", "Steps"]
