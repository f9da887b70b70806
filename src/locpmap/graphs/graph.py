"""General undirected graphs."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, to_labels, to_numpy
from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency, greedy_colours


@dataclass(frozen=True, eq=False)
class Graph:
    """Undirected graph with sites ``0 .. n_sites - 1``.

    Args:
        n_sites (int): Number of sites.
        edge_list (array): Pairs of sites (E, 2), each edge once.  The order of a pair matters only for asymmetric
            tables: ``pairwise[e, a, b]`` is the score of label a at ``edges[e, 0]`` and label b at ``edges[e, 1]``.

    Example:
        >>> from locpmap.graphs import Graph
        >>> Graph(4, [[0, 1], [1, 2], [2, 0], [2, 3]]).colours().tolist()
        [0, 1, 2, 0]

    See Also:
        :meth:`locpmap.Potentials.graph`
    """

    n_sites: int
    edge_list: npt.ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_sites", whole_number("n_sites", self.n_sites, 1))
        pairs = to_numpy(self.edge_list, "edges")
        if pairs.dtype == np.bool_:
            raise InputTypeError("edges has dtype bool, expected integers")
        edges = np.zeros((0, 2), np.int64) if pairs.shape in ((0,), (0, 2)) else to_labels(pairs, "edges")
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise InputError(f"edges has shape {edges.shape}, expected (E, 2)")
        bad = np.flatnonzero((edges < 0).any(axis=1) | (edges >= self.n_sites).any(axis=1))
        if bad.size:
            raise InputError(
                f"edges[{bad[0]}] is {tuple(edges[bad[0]].tolist())}, expected sites from 0 to {self.n_sites - 1}"
            )
        loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
        if loops.size:
            loop = loops[0]
            raise InputError(f"edges[{loop}] joins site {edges[loop, 0]} to itself, expected two different sites")
        key = edges.min(axis=1) * self.n_sites + edges.max(axis=1)
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        if (counts > 1).any():
            pair = tuple(edges[first[counts > 1][0]].tolist())
            raise InputError(f"edges holds the pair {pair} more than once, expected each edge once")
        object.__setattr__(self, "edge_list", frozen(edges.astype(np.int32)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sites, (n_sites,)."""
        return (self.n_sites,)

    @property
    def direction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of per-edge values, ((E,),): the edges of a graph form one group, as those of one step of a grid."""
        return ((len(self.edges()),),)

    @property
    def direction_sizes(self) -> list[int]:
        """Number of edges, [E], in the form of a grid."""
        return [len(self.edges())]

    def edges(self) -> npt.NDArray[np.int32]:
        """Return both ends of every edge, (E, 2)."""
        return self.edge_list  # type: ignore[return-value]

    @cached_property
    def _adjacency(self) -> Adjacency:
        return adjacency(self.n_sites, self.edges())

    def adjacency(self) -> Adjacency:
        """Return neighbour lists."""
        return self._adjacency

    def colours(self) -> npt.NDArray[np.int32]:
        """Return a greedy colouring in site order, (S,)."""
        return greedy_colours(self._adjacency.indptr, self._adjacency.neighbour)

    def site_ids(self) -> npt.NDArray[np.int64]:
        """Return the site numbers that key the noise, (S,)."""
        return np.arange(self.n_sites, dtype=np.int64)
