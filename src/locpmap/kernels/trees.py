"""Spanning forests of a model's graph, for message orders and for the tree-reweighted bound.

All functions run on the host, in NumPy; for a model on a GPU, `lists_of` returns host arrays of its structure.
SciPy is imported inside the functions that use it, because its import takes longer than the rest of the library.
"""

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array, Restore, frozen
from locpmap.kernels.model import Model
from locpmap.kernels.spec import Structure


class Lists(NamedTuple):
    """Edges and neighbour lists with the fields of :class:`locpmap.kernels.Model`."""

    edges: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int64]
    neighbour: npt.NDArray[np.int32]


class Forest(NamedTuple):
    """A forest that spans every connected component."""

    order: npt.NDArray[np.int32]  # (S,) sites, parents before children
    parent: npt.NDArray[np.int32]  # (S,) the slot of each site's parent in the neighbour lists, -1 at a root


@lru_cache(maxsize=4)
def lists_of(structure: Structure) -> Lists:
    """Return the lists of a grid or a graph; cached, because decoders call this repeatedly."""
    lists = structure.adjacency()
    return Lists(structure.edges(), lists.indptr, lists.neighbour)


@lru_cache(maxsize=4)
def outward(structure: Structure, device: str | None) -> Any:
    """Return the sites in breadth-first order, parents before children, (S,), on the device; cached."""
    return Restore(device)(frozen(breadth_first(lists_of(structure)).order))


@lru_cache(maxsize=4)
def shared_out(structure: Structure, least: int, device: str | None) -> tuple[Any, Any]:
    """Return the parents (K, S) and edge fractions (E,) of `spanning_forests` on the device; cached."""
    forests, share = spanning_forests(lists_of(structure), least)
    place = Restore(device)
    return place(np.stack([forest.parent for forest in forests])), place(share)


@lru_cache(maxsize=4)
def there_and_back(structure: Structure) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return `outward` reversed and then forward, (2S,), sorted by level, and the start of each level; cached.

    Sites of one level are not neighbours, and a site's level is above those of all neighbours that precede it.
    Visiting a level in parallel is therefore equivalent to visiting its sites in order.  O(S + E), in Python.
    """
    lists, order = lists_of(structure), outward(structure, None)
    orders, sizes = [], []
    for way in (order[::-1], order):
        level = _levels(lists, way)
        orders.append(way[np.argsort(level[way], kind="stable")])
        sizes.append(np.bincount(level))
    return frozen(np.concatenate(orders)), frozen(np.append(0, np.cumsum(np.concatenate(sizes))))


def _levels(lists: Lists, order: Array) -> Array:
    """Return the levels (S,): one more than the highest level of the preceding neighbours; 0 if there are none."""
    starts, others = list(pairwise(lists.indptr.tolist())), lists.neighbour.tolist()
    level = [-1] * len(order)
    for site in order.tolist():
        begin, stop = starts[site]
        level[site] = max((level[other] for other in others[begin:stop]), default=-1) + 1
    return np.array(level)


def breadth_first(model: Model | Lists, edges: Array | None = None) -> Forest:
    """Return the breadth-first forest of the graph, or of the edges with the given indices; O(S + E)."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    n_sites = len(model.indptr) - 1
    ends = model.edges if edges is None else model.edges[edges]
    _, component = connected_components(_matrix(ends, n_sites), directed=False)
    roots = np.unique(component, return_index=True)[1]
    # An extra site, joined to a root of each component, makes one search sufficient.
    joined = np.concatenate([ends, np.stack([np.full(len(roots), n_sites), roots], axis=1)])
    order, came_from = breadth_first_order(_matrix(joined, n_sites + 1), n_sites, directed=False)
    owner = np.repeat(np.arange(n_sites), np.diff(model.indptr))
    slots = np.flatnonzero(came_from[owner] == model.neighbour)
    parent = np.full(n_sites, -1, np.int32)
    parent[owner[slots]] = slots
    return Forest(order[1:].astype(np.int32), parent)


def is_forest(model: Model | Lists) -> bool:
    """Return whether the graph has no cycle."""
    n_sites = len(model.indptr) - 1
    if len(model.edges) >= n_sites:
        return False
    from scipy.sparse.csgraph import connected_components

    n_components, _ = connected_components(_matrix(model.edges, n_sites), directed=False)
    return len(model.edges) == n_sites - n_components


def spanning_forests(model: Model | Lists, least: int) -> tuple[list[Forest], npt.NDArray[np.float64]]:
    """Return forests that together contain every edge, and the fraction of them that contains each edge, (E,).

    Each one is a minimum spanning forest.  An edge costs the number of its previous uses plus a random fraction (fixed
    seed), which balances the uses.  A graph without cycles yields one forest, any other graph at least ``least``.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    n_sites, n_edges = len(model.indptr) - 1, len(model.edges)
    low, high = np.sort(model.edges, axis=1).T.astype(np.int64)
    key = low * n_sites + high
    by_key = np.argsort(key)
    random = np.random.default_rng(0)
    uses = np.zeros(n_edges)
    forests: list[Forest] = []
    least = 1 if is_forest(model) else least
    while len(forests) < least or uses.min(initial=1) == 0:
        cost = uses + random.uniform(0.25, 0.75, n_edges)  # above 0, because SciPy reads 0 as no edge
        tree = minimum_spanning_tree(_matrix(model.edges, n_sites, cost)).tocoo()
        chosen = np.minimum(tree.row, tree.col).astype(np.int64) * n_sites + np.maximum(tree.row, tree.col)
        held = by_key[np.searchsorted(key, chosen, sorter=by_key)]
        uses[held] += 1
        forests.append(breadth_first(model, held))
    return forests, uses / len(forests)


def _matrix(ends: Array, n_sites: int, values: Array | None = None) -> Any:
    from scipy.sparse import coo_array

    data = np.ones(len(ends)) if values is None else values
    return coo_array((data, (ends[:, 0], ends[:, 1])), shape=(n_sites, n_sites)).tocsr()
