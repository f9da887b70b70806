"""Spanning forests of a model's graph: orders for messages, and the forests that a tree-reweighted bound averages.

SciPy is imported by the functions that use it: it takes longer to load than the rest of the library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from locpmap.kernels import Model

Array = npt.NDArray[Any]


class Forest(NamedTuple):
    """A forest that spans every connected component."""

    order: npt.NDArray[np.int32]  # (S,) sites, parents before children
    parent: npt.NDArray[np.int32]  # (S,) the slot of each site's parent in its neighbour list, -1 at a root


def breadth_first(model: Model, edges: Array | None = None) -> Forest:
    """The breadth-first forest of the graph, or of the given edges (indices) alone; O(S + E)."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    n_sites = model.unary.shape[1]
    ends = model.edges if edges is None else model.edges[edges]
    _, component = connected_components(_matrix(ends, n_sites), directed=False)
    roots = np.unique(component, return_index=True)[1]
    # One more site, joined to a root of each component, makes a single search do.
    joined = np.concatenate([ends, np.stack([np.full(len(roots), n_sites), roots], axis=1)])
    order, came_from = breadth_first_order(_matrix(joined, n_sites + 1), n_sites, directed=False)
    owner = np.repeat(np.arange(n_sites), np.diff(model.indptr))
    slots = np.flatnonzero(came_from[owner] == model.neighbour)
    parent = np.full(n_sites, -1, np.int32)
    parent[owner[slots]] = slots
    return Forest(order[1:].astype(np.int32), parent)


def is_forest(model: Model) -> bool:
    """Whether the graph has no cycle."""
    from scipy.sparse.csgraph import connected_components

    n_sites = model.unary.shape[1]
    n_components, _ = connected_components(_matrix(model.edges, n_sites), directed=False)
    return len(model.edges) == n_sites - n_components


def spanning_forests(model: Model, least: int) -> tuple[list[Forest], npt.NDArray[np.float64]]:
    """Forests that together hold every edge, and the share of them that holds each, (E,).

    Each is a minimum spanning forest where an edge costs the number of its uses so far (and a fixed random fraction),
    so uses stay even.  A graph without cycles is its own only forest; otherwise there are at least ``least``.
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    n_sites, n_edges = model.unary.shape[1], len(model.edges)
    low, high = np.sort(model.edges, axis=1).T.astype(np.int64)
    key = low * n_sites + high
    by_key = np.argsort(key)
    random = np.random.default_rng(0)
    uses = np.zeros(n_edges)
    forests: list[Forest] = []
    least = 1 if is_forest(model) else least
    while len(forests) < least or uses.min(initial=1) == 0:
        cost = uses + random.uniform(0.25, 0.75, n_edges)  # above 0, which would mean no edge
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
