"""Elimination orders of the sites of a graph, and the sizes of their tables.

Eliminating a site replaces its terms by one table over its remaining neighbours, which become neighbours of one
another.  The cost is the total number of table entries and depends on the order.  Three kinds of orders are tried:

- *sweeps* along the graph, best on grids, where a table spans the narrow side;
- *smallest table first*, fast, and optimal on trees and chains;
- *least fill first*, good on irregular graphs.

Sites with one allowed label are constants and not part of an order.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import TooLargeError
from locpmap.graphs import Graph, Grid

Neighbours = dict[int, set[int]]

EASY = 2**18  # total entries up to which the first order found is accepted
GREEDY_SITES = 100_000  # above this, greedy search takes too long
FILL_SITES = 3_000  # above this, counting fill takes too long, and greedy search stops at the table limit


@dataclass(frozen=True, eq=False)
class Plan:
    """Elimination order: site ``order[t]`` is eliminated t-th, from a table over itself and ``scopes[t]``."""

    order: list[int]
    scopes: list[list[int]]  # sites eliminated later, in reverse order
    n_labels: list[int]  # per site

    @cached_property
    def position(self) -> dict[int, int]:
        """Position of each site in the order."""
        return {site: t for t, site in enumerate(self.order)}

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each table: the site itself first, then its scope."""
        pairs = zip(self.order, self.scopes, strict=True)
        return [tuple(self.n_labels[s] for s in (site, *scope)) for site, scope in pairs]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each table."""
        return [int(np.prod(shape, dtype=np.float64)) for shape in self.shapes]

    @cached_property
    def children(self) -> list[list[int]]:
        """Earlier eliminations whose messages enter table t: those whose scope ends with its site."""
        children: list[list[int]] = [[] for _ in self.order]
        for t, scope in enumerate(self.scopes):
            if scope:
                children[self.position[scope[-1]]].append(t)
        return children


def plan_elimination(structure: Grid | Graph, n_labels: Sequence[int], max_table: int) -> Plan:
    """Return the cheapest order found for ``n_labels`` of the sites and tables up to ``max_table``, or raise."""
    limit = np.log2(max_table) + 1e-9
    edges, bits = structure.edges(), np.log2(np.asarray(n_labels, np.float64))
    free = bits > 0
    edges = edges[free[edges].all(axis=1)]
    sites = np.flatnonzero(free).tolist()
    plans: list[Plan] = []
    needed: list[float] = []

    def try_order(choose: Callable[[Neighbours], tuple[list[int], list[list[int]], float]]) -> None:
        order, scopes, most = choose(_neighbours(sites, edges))
        if len(order) == len(sites):
            needed.append(most)
            if most <= limit:
                plans.append(Plan(order, scopes, list(n_labels)))

    sweeps = [(order, _frontier_bits(order, edges, bits)) for order in _sweeps(structure, edges, free)]
    needed += [width for _, width in sweeps]
    # No order of a whole grid has smaller tables than the sweep along its narrow side.
    if len(sites) <= GREEDY_SITES and not (isinstance(structure, Grid) and free.all() and min(needed) > limit):
        stop = np.inf if len(sites) <= FILL_SITES else limit
        try_order(lambda near: _greedy(near, bits, _table_bits, stop))
        if plans and sum(plans[0].sizes) <= EASY:
            return plans[0]
    for order, width in sweeps:
        if width <= limit:
            try_order(lambda near, order=order: _in_order(near, bits, order))  # type: ignore[misc]
    if len(sites) <= FILL_SITES:
        try_order(lambda near: _greedy(near, bits, _fill, limit))
    if not plans:
        raise TooLargeError(
            f"exact needs a table of 2^{min(needed):.1f} entries in the best elimination order found,"
            f" expected at most max_table = {max_table} (2^{np.log2(max_table):.1f})"
        )
    return min(plans, key=lambda plan: sum(plan.sizes))


def _neighbours(sites: Iterable[int], edges: Array) -> Neighbours:
    near: Neighbours = {site: set() for site in sites}
    for i, j in edges.tolist():
        near[i].add(j)
        near[j].add(i)
    return near


def _remove(near: Neighbours, site: int) -> set[int]:
    """Remove a site and connect its neighbours with each other."""
    clique = near.pop(site)
    for other in clique:
        near[other] |= clique
        near[other] -= {site, other}
    return clique


def _sorted_scopes(order: list[int], cliques: list[set[int]]) -> list[list[int]]:
    position = {site: t for t, site in enumerate(order)}
    return [sorted(clique, key=position.__getitem__, reverse=True) for clique in cliques]


def _in_order(near: Neighbours, bits: Array, order: list[int]) -> tuple[list[int], list[list[int]], float]:
    cliques = [_remove(near, site) for site in order]
    most = max((_bits_of(clique | {site}, bits) for site, clique in zip(order, cliques, strict=True)), default=0.0)
    return order, _sorted_scopes(order, cliques), most


def _greedy(
    near: Neighbours, bits: Array, cost: Callable[[Neighbours, Array, int], float], stop: float
) -> tuple[list[int], list[list[int]], float]:
    """Eliminate the cheapest site first; stop at a table of more than ``stop`` bits.

    A heap holds the costs; outdated entries are skipped.  Eliminating a site changes the tables of its neighbours.  If
    it connects two of them, it also changes the fill of their common neighbours.
    """
    costs = {site: cost(near, bits, site) for site in near}
    heap = [(value, site) for site, value in costs.items()]
    heapq.heapify(heap)
    order: list[int] = []
    cliques: list[set[int]] = []
    most = 0.0
    while heap:
        value, site = heapq.heappop(heap)
        if costs.get(site) != value:
            continue
        del costs[site]
        touched = set(near[site])
        if cost is _fill and value >= 1:
            touched = touched.union(*(near[other] for other in near[site])) - {site}
        most = max(most, _bits_of(near[site] | {site}, bits))
        if most > stop:
            break
        order.append(site)
        cliques.append(_remove(near, site))
        for other in touched:
            costs[other] = cost(near, bits, other)
            heapq.heappush(heap, (costs[other], other))
    return order, _sorted_scopes(order, cliques) if not near else [], most


def _bits_of(sites: set[int], bits: Array) -> float:
    return float(sum(bits[site] for site in sites))


def _table_bits(near: Neighbours, bits: Array, site: int) -> float:
    """Return the base-2 logarithm of the table's size."""
    return _bits_of(near[site], bits) + float(bits[site])


def _fill(near: Neighbours, bits: Array, site: int) -> float:
    """Return the number of unconnected pairs of neighbours, with the table's size as tie-breaker."""
    clique = near[site]
    missing = sum(len(clique) - 1 - len(clique & near[other]) for other in clique) // 2
    return missing + 1e-6 * _table_bits(near, bits, site)


def _sweeps(structure: Grid | Graph, edges: Array, free: Array) -> list[list[int]]:
    """Return orders that run along the graph."""
    number = np.arange(structure.n_sites)
    if isinstance(structure, Grid):
        whole = number.reshape(structure.shape)
        return [order[free[order]].tolist() for order in (whole.ravel(), whole.T.ravel())]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = np.concatenate([edges, edges[:, ::-1]]).T
    graph = csr_array((np.ones(ends.shape[1], np.int8), (ends[0], ends[1])), shape=(len(number), len(number)))
    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return [order[free[order]].tolist()]


def _frontier_bits(order: list[int], edges: Array, bits: Array) -> float:
    """Return the base-2 logarithm of the largest table of a sweep, O(S + E).

    A site is in the frontier from the elimination of its first neighbour until its own.
    """
    if not order:
        return 0.0
    time = np.zeros(len(bits), np.int64)
    time[order] = np.arange(len(order))
    enters = time.copy()
    for a, b in (edges.T, edges.T[::-1]):
        np.minimum.at(enters, a, time[b])
    change = np.zeros(len(order) + 1)
    np.add.at(change, enters[order], bits[order])
    np.add.at(change, time[order] + 1, -bits[order])
    return float(np.cumsum(change).max())
