"""Neighbour lists, and greedy colouring of general graphs."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Adjacency(NamedTuple):
    """Neighbour lists in compressed sparse rows; :class:`locpmap.kernels.Model` documents the fields."""

    indptr: npt.NDArray[np.int64]
    neighbour: npt.NDArray[np.int32]
    edge: npt.NDArray[np.int32]
    end: npt.NDArray[np.uint8]
    reverse: npt.NDArray[np.int32]


def adjacency(n_sites: int, edges: npt.NDArray[np.int32]) -> Adjacency:
    """Return neighbour lists in edge order, O(E log E)."""
    n_edges = len(edges)
    site = edges.T.ravel()  # first ends, then second ends
    slots = np.argsort(site, kind="stable").astype(np.int32)
    position = np.empty(2 * n_edges, np.int32)
    position[slots] = np.arange(2 * n_edges, dtype=np.int32)
    second = slots >= n_edges
    edge = np.where(second, slots - n_edges, slots)
    opposite = np.where(second, edge, slots + n_edges)
    indptr = np.zeros(n_sites + 1, np.int64)
    np.cumsum(np.bincount(site, minlength=n_sites), out=indptr[1:])
    return Adjacency(
        indptr=indptr,
        neighbour=site[opposite],
        edge=edge,
        end=second.astype(np.uint8),
        reverse=position[opposite],
    )


def greedy_colours(indptr: npt.NDArray[np.int64], neighbour: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return greedy colours: each site gets the smallest colour that no earlier neighbour has."""
    starts, others = indptr.tolist(), neighbour.tolist()
    colours: list[int] = []
    for site, (begin, stop) in enumerate(pairwise(starts)):
        taken = {colours[other] for other in others[begin:stop] if other < site}
        colour = 0
        while colour in taken:
            colour += 1
        colours.append(colour)
    return np.array(colours, np.int32)


def colour_classes(colours: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the sites sorted by colour, then by number, and the position where each colour class begins."""
    most = int(colours.max(initial=-1))
    order = np.argsort(colours.astype(np.min_scalar_type(most + 1)), kind="stable").astype(np.int32)  # bytes: in O(S)
    class_ptr = np.zeros(most + 2, np.int64)
    np.cumsum(np.bincount(colours), out=class_ptr[1:])
    return order, class_ptr
