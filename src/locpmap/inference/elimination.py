"""Variable elimination: orders of the sites of a graph, the sizes of their tables, and the passes through the tables.

Eliminating a site replaces its terms by one table over its remaining neighbours (its *scope*), which become neighbours
of one another.  The cost is the total number of table entries and depends on the order.  Three kinds of orders are
tried:

- *sweeps* along the graph, best on grids, where a table spans the narrow side;
- *smallest table first*, fast, and optimal on trees and chains;
- *least fill first*, good on irregular graphs.

Sites with one allowed label are constants and not part of an order.  Each other site is eliminated from a table over
itself and its scope::

    table_t(y_t, scope) = unary_t + pairwise terms with the scope + messages of earlier eliminations
    sum:  message_t(scope) = log Σ_{y_t} exp table_t        p(y_t | scope) = exp(table_t - message_t)
    max:  message_t(scope) = max_{y_t} table_t

Sums use exp table_t and exp message_t themselves, without logarithms, if no entry can underflow.

B images with the same allowed labels are processed together, on the first axis of every array.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, TooLargeError
from locpmap.graphs import Box, Graph, Grid
from locpmap.inference.decoder import IMPOSSIBLE
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables

Neighbours = dict[int, set[int]]

EASY = 2**18  # total entries up to which the first order found is accepted
GREEDY_SITES = 100_000  # above this, greedy search takes too long
FILL_SITES = 3_000  # above this, counting fill takes too long, and greedy search stops at the table limit
CACHED_ENTRIES = 2**26  # message entries cached for the backward pass (512 MB); more are computed several times
PARTS = 8  # parts into which eliminations are divided if their messages are too many to cache
LOG_RANGE = 600.0  # largest range of log-scores whose exponentials do not underflow in double precision


@dataclass(frozen=True, eq=False)
class Plan:
    """Elimination order: site ``order[t]`` is eliminated t-th, from a table over itself and ``scopes[t]``."""

    order: list[int]
    scopes: list[list[int]]  # sites eliminated later, in reverse order
    n_labels: list[int]  # per site

    @cached_property
    def position(self) -> dict[int, int]:
        return {site: t for t, site in enumerate(self.order)}

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each table: the site itself first, then its scope."""
        pairs = zip(self.order, self.scopes, strict=True)
        return [tuple(self.n_labels[s] for s in (site, *scope)) for site, scope in pairs]

    @cached_property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.float64)) for shape in self.shapes]

    @cached_property
    def message_sizes(self) -> list[int]:
        return [size // shape[0] for size, shape in zip(self.sizes, self.shapes, strict=True)]

    @cached_property
    def children(self) -> list[list[int]]:
        """Earlier eliminations whose messages enter table t: those whose scope ends with its site."""
        children: list[list[int]] = [[] for _ in self.order]
        for t, scope in enumerate(self.scopes):
            if scope:
                children[self.position[scope[-1]]].append(t)
        return children


def plan_elimination(structure: Box | Graph, n_labels: Sequence[int], max_table: int) -> Plan:
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


def _sweeps(structure: Box | Graph, edges: Array, free: Array) -> list[list[int]]:
    """Return orders that run along the graph."""
    number = np.arange(structure.n_sites)
    if isinstance(structure, Box):
        whole = number.reshape(structure.shape)
        orders = [np.moveaxis(whole, axis, 0).ravel() for axis in range(whole.ndim)]
        return [order[free[order]].tolist() for order in orders]
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


class Algebra(NamedTuple):
    """How terms are combined and a site is eliminated: sum or max, of scores or of their exponentials."""

    enter: Callable[[Array], Array]  # from scores
    join: np.ufunc
    eliminate: Callable[[Array], Array]  # reduces axis 1
    divide: np.ufunc  # inverse of join
    log: Callable[[Array], Array]  # to scores


def site_weights(table: Array) -> tuple[Array, Array]:
    """Return exp(table - top) and the maximum ``top`` over the site, 0 for impossible scopes."""
    top = table.max(axis=1, keepdims=True)
    top[top == -np.inf] = 0.0
    weight = np.subtract(table, top)
    return np.exp(weight, out=weight), top[:, 0]


def _log_sum(table: Array) -> Array:
    weight, top = site_weights(table)
    with np.errstate(divide="ignore"):
        return top + np.log(weight.sum(axis=1))


MAX = Algebra(np.asarray, np.add, lambda table: table.max(axis=1), np.subtract, np.asarray)
LOG_SUM = MAX._replace(eliminate=_log_sum)
SUM = Algebra(np.exp, np.multiply, lambda table: table.sum(axis=1), np.divide, np.log)


class Tables:
    """Terms of some images over their allowed labels, with the terms of single-label sites folded in.

    Every term is shifted to maximum 0.  ``constant`` (B,) is the sum of the shifts.
    """

    def __init__(self, model: Model, images: Array, allowed: Array, plan: Plan) -> None:
        self.plan, self.n_images = plan, len(images)
        choices = [np.flatnonzero(mask) for mask in allowed]
        whole = allowed.all()
        self.unary = [model.unary[images, s][:, choices[s]].astype(np.float64) for s in range(len(choices))]  # (B, d)
        self.pairs: list[list[tuple[int, Array]]] = [[] for _ in plan.order]  # other site, (B, d, d of other)
        every = np.arange(len(model.edges))
        tables = np.stack([edge_tables(model, n, every) for n in images.tolist()])  # (B, E, L, L)
        self.constant = np.zeros(self.n_images)
        for e, (i, j) in enumerate(model.edges.tolist()):
            table = tables[:, e] if whole else tables[:, e][:, choices[i]][:, :, choices[j]]
            first, second = plan.position.get(i), plan.position.get(j)
            if first is None and second is None:
                self.constant += table[:, 0, 0]
            elif first is None:
                self.unary[j] = self.unary[j] + table[:, 0]
            elif second is None:
                self.unary[i] = self.unary[i] + table[:, :, 0]
            elif first < second:
                self.pairs[first].append((j, self._shifted(table)))
            else:
                self.pairs[second].append((i, self._shifted(table.swapaxes(1, 2))))
        self.unary = [self._shifted(unary) for unary in self.unary]
        # Axes of a table: the site, its neighbours, the rest.  Terms vary along the slow axes, messages along the fast.
        near = [dict.fromkeys(other for other, _ in pairs) for pairs in self.pairs]
        sites = zip(plan.order, near, plan.scopes, strict=True)
        self.axes = [[site, *others, *(s for s in scope if s not in others)] for site, others, scope in sites]

    def _shifted(self, term: Array) -> Array:
        top = term.max(axis=tuple(range(1, term.ndim)), keepdims=True)
        self.constant += top.reshape(-1)
        if np.isneginf(self.constant).any():
            raise InputError(IMPOSSIBLE)
        return term - top

    @cached_property
    def log_range(self) -> Array:
        """Upper bound (B,) on the difference of two entries of a table.

        A message varies with a site of its scope at most as much as the pairwise terms between the site and eliminated
        sites.
        """
        largest = np.zeros(self.n_images)
        spans: list[dict[int, Array]] = []  # variation (B,) of each message with each site of its scope
        for t, site in enumerate(self.plan.order):
            terms = [item for child in self.plan.children[t] for item in spans[child].items()]
            terms += [(other, -pair.min(axis=(1, 2))) for other, pair in self.pairs[t]]
            largest = np.maximum(largest, sum((r for _, r in terms), -self.unary[site].min(axis=1)))
            spans.append({})
            for other, variation in terms:
                if other != site:
                    spans[t][other] = spans[t].get(other, 0.0) + variation
        return largest

    def table(self, t: int, messages: list[Array], algebra: Algebra) -> Array:
        """Return the table from which site ``order[t]`` is eliminated, with axes (B, *axes[t])."""
        axis = {site: k for k, site in enumerate(self.axes[t], start=1)}

        def spread(values: Array, sites: list[int]) -> Array:
            order = sorted(range(len(sites)), key=lambda k: axis[sites[k]])
            shape = [self.n_images] + [1] * len(axis)
            for k in order:
                shape[axis[sites[k]]] = values.shape[1 + k]
            return np.ascontiguousarray(values.transpose(0, *(1 + k for k in order))).reshape(shape)

        site = self.axes[t][0]
        total = spread(self.unary[site], [site])
        for other, pair in self.pairs[t]:
            total = total + spread(pair, [site, other])
        total = algebra.enter(total)
        for child, message in zip(self.plan.children[t], messages, strict=True):
            total = algebra.join(total, spread(message, self.axes[child][1:]))
        return total


def forward_backward(tables: Tables, algebra: Algebra, constant: Array) -> Iterator[tuple[int, list[Array] | None]]:
    """Eliminate all sites, yielding ``(t, None)``; then go back from last to first, yielding t and incoming messages.

    Messages are shifted to maximum 0; the shifts are added to ``constant`` (B,).
    """
    plan = tables.plan

    def run(segment: range, waiting: dict[int, Array], constant: Array) -> Iterator[tuple[int, list[Array]]]:
        for t in segment:
            incoming = [waiting.pop(child) for child in plan.children[t]]
            message = algebra.eliminate(tables.table(t, incoming, algebra))
            top = message.max(axis=tuple(range(1, message.ndim)), keepdims=True)
            constant += algebra.log(top.reshape(-1))
            if np.isneginf(constant).any():
                raise InputError(IMPOSSIBLE)
            if plan.scopes[t]:
                waiting[t] = algebra.divide(message, top, out=message)
            yield t, incoming

    def visit(
        segment: range, waiting: dict[int, Array], constant: Array, first: bool
    ) -> Iterator[tuple[int, list[Array] | None]]:
        """Cache the messages of a segment, or only those that cross borders of its parts, which are then repeated."""
        parts = _parts(segment, plan.message_sizes, CACHED_ENTRIES // tables.n_images)
        borders, cached = [], []
        for part in parts:
            borders.append(dict(waiting))
            for t, incoming in run(part, waiting, constant):
                if len(parts) == 1:
                    cached.append(incoming)
                if first:
                    yield t, None
        if len(parts) == 1:
            borders.clear()
            for t in reversed(segment):
                yield t, cached.pop()
        else:
            while parts:
                yield from visit(parts.pop(), borders.pop(), np.zeros_like(constant), False)

    yield from visit(range(len(plan.order)), {}, constant, True)


def _parts(segment: range, sizes: list[int], capacity: int) -> list[range]:
    """Divide a segment whose messages exceed the capacity into at most `PARTS` parts of similar size."""
    entries = np.cumsum([float(sizes[t]) for t in segment])
    n_parts = min(PARTS, len(segment), int(np.ceil(entries[-1] / capacity))) if len(segment) else 1
    cuts = 1 + np.searchsorted(entries[:-1], np.arange(1, n_parts) * entries[-1] / n_parts) if n_parts > 1 else []
    borders = [0, *np.unique(np.minimum(cuts, len(segment) - 1)).tolist(), len(segment)]
    return [segment[a:b] for a, b in pairwise(borders)]
