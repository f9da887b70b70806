"""Any pairwise graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, to_labels, to_numpy
from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency, greedy_colours


@dataclass(frozen=True, eq=False)
class Graph:
    """Sites ``0 .. n_sites - 1`` and undirected edges, given as (E, 2) pairs of sites.

    The order of the two ends matters only for tables that are not symmetric: ``pairwise[e, a, b]`` has label a at
    ``edges[e, 0]``.

    >>> Graph(4, [[0, 1], [1, 2], [2, 0], [2, 3]]).colours().tolist()
    [0, 1, 2, 0]
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
        """(n_sites,)."""
        return (self.n_sites,)

    @property
    def direction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of per-edge values: a graph has one direction."""
        return ((len(self.edges()),),)

    @property
    def direction_sizes(self) -> list[int]:
        """The number of edges, of its one direction."""
        return [len(self.edges())]

    def edges(self) -> npt.NDArray[np.int32]:
        """Both ends of every edge, (E, 2)."""
        return self.edge_list  # type: ignore[return-value]

    @cached_property
    def _adjacency(self) -> Adjacency:
        return adjacency(self.n_sites, self.edges())

    def adjacency(self) -> Adjacency:
        """Neighbour lists."""
        return self._adjacency

    def colours(self) -> npt.NDArray[np.int32]:
        """Greedy colouring in site order."""
        return greedy_colours(self._adjacency.indptr, self._adjacency.neighbour)

    def site_ids(self) -> npt.NDArray[np.int64]:
        """Site numbers, which key the noise."""
        return np.arange(self.n_sites, dtype=np.int64)
