"""Hierarchies of clusters of a graph's sites, for error fields on graphs."""

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import whole_number
from locpmap.graphs.adjacency import adjacency
from locpmap.graphs.graph import Graph


def cluster_hierarchy(graph: Graph, n_levels: int, first: int = 4) -> Array:
    """Return nested clusters of neighbouring sites, of about ``first``, ``2 · first``, ``4 · first``, .. sites.

    Clusters are merged in pairs, repeatedly: each cluster, the smallest first, joins its smallest free neighbour.

    Args:
        graph (Graph): The graph.
        n_levels (int): Number of levels.
        first (int, default 4): Approximate number of sites in the clusters of the first level, rounded to a power of
            two.

    Returns:
        array: Cluster numbers (n_levels, S), for the argument ``clusters`` of :class:`locpmap.ErrorFields`.

    Notes:
        Cost: O((S + E) log S) per doubling.

    Example:
        >>> from locpmap.graphs import Graph, cluster_hierarchy
        >>> chain = Graph(8, [[i, i + 1] for i in range(7)])
        >>> cluster_hierarchy(chain, 2, first=2).tolist()
        [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]]
    """
    n_levels = whole_number("n_levels", n_levels, 1, 30)
    first = whole_number("first", first, 1, graph.n_sites)
    edges, levels = graph.edges(), [np.arange(graph.n_sites)]
    for _ in range(round(np.log2(first)) + n_levels - 1):
        levels.append(_merged(levels[-1], edges))
    return np.stack(levels[-n_levels:])


def _merged(cluster: Array, edges: Array) -> Array:
    """Merge neighbouring clusters in pairs; return new cluster numbers of the sites, in order of their first site."""
    n = int(cluster.max()) + 1
    sizes = np.bincount(cluster, minlength=n)
    pairs = cluster[edges]
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    lists = adjacency(n, pairs.astype(np.int32))
    partner = np.arange(n)
    for a in np.argsort(sizes, kind="stable").tolist():
        near = lists.neighbour[lists.indptr[a] : lists.indptr[a + 1]].tolist()
        free = [b for b in near if partner[b] == b]
        if partner[a] == a and free:
            b = min(free, key=lambda other: (sizes[other], other))
            partner[a], partner[b] = b, a
    _, found = np.unique(np.minimum(np.arange(n), partner), return_inverse=True)
    return found[cluster]
