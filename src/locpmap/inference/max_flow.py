"""The best labelling of attractive two-label models, by maximum flow.

Maximises, for every image of a batch, over y in {0, 1}::

    Σ_i bias[i] y_i - Σ_(i,j) ( ahead[e] [y_i = 1, y_j = 0] + back[e] [y_i = 0, y_j = 1] )

with ``ahead, back >= 0``.  Infinite values are hard constraints.  Sites whose bias outweighs all their links are
labelled first; a minimum cut labels the others.  All images form one graph of separate components.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array
from locpmap.errors import InputError

CAPACITY = 2.0**30 - 1  # SciPy uses 32-bit integers, and a residual capacity may be the sum of two
TINY = 1e-280  # smaller values cannot be scaled to integers
GAP = 1e-11  # tolerated distance from the minimum cut, as a fraction of the flow
ROUNDS = 5
WORTHWHILE = 0.02  # fraction of sites that a round has to label for another one to follow
IMPOSSIBLE = "pairwise forbids (-inf) every labelling, expected a model with at least one that is allowed"


@dataclass
class _Links:
    """Links between unlabelled sites, (K,) each."""

    first: Array
    second: Array
    ahead: Array
    back: Array

    def __getitem__(self, chosen: Array) -> Self:
        return type(self)(self.first[chosen], self.second[chosen], self.ahead[chosen], self.back[chosen])


def best_labels(bias: Array, edges: Array, ahead: Array, back: Array) -> npt.NDArray[np.int64]:
    """Return the best labels (N, S) for bias (N, S), edges (E, 2), ahead and back (N, E)."""
    n_images, n_sites = bias.shape
    offset = n_sites * np.arange(n_images)[:, None]
    first, second = ((edges[:, end] + offset).ravel() for end in (0, 1))
    links = _Links(first, second, ahead.ravel(), back.ravel())
    bias = bias.ravel().astype(np.float64)
    labels = np.full(bias.shape, -1, np.int8)
    links = _settle(bias, links[(links.ahead > 0) | (links.back > 0)], labels, n_sites)
    free = np.flatnonzero(labels < 0)
    if len(free):
        number = np.zeros(len(labels), np.int64)
        number[free] = np.arange(len(free))
        links.first, links.second = number[links.first], number[links.second]
        labels[free] = _cut(bias[free], links, free // n_sites)
    return labels.reshape(n_images, n_sites).astype(np.int64)


def _settle(bias: Array, links: _Links, labels: Array, n_sites: int) -> _Links:
    """Label the sites whose bias outweighs all their links, update the biases of their neighbours, and repeat.

    Changes ``labels`` and ``bias`` in place; returns the links between unlabelled sites.  Each image stops on its own
    when a round labels few sites, so that its result does not depend on the rest of the batch.
    """
    size = len(bias)
    active = np.ones((size // n_sites, 1), np.bool_)  # by image
    symmetric = np.array_equal(links.ahead, links.back)
    while active.any():
        if_one = if_zero = np.bincount(links.first, links.ahead, size) + np.bincount(links.second, links.back, size)
        if not symmetric:
            if_zero = np.bincount(links.first, links.back, size) + np.bincount(links.second, links.ahead, size)
        free = ((labels < 0).reshape(-1, n_sites) & active).ravel()
        one = free & ((bias > if_one) | (bias == np.inf))
        zero = free & ((bias <= -if_zero) | (bias == -np.inf))
        labels[one], labels[zero] = 1, 0
        y, z = labels[links.first], labels[links.second]
        broken = links.ahead[(y == 1) & (z == 0)].sum() + links.back[(y == 0) & (z == 1)].sum()
        if np.isnan(bias).any() or broken == np.inf:
            raise InputError(IMPOSSIBLE)
        with np.errstate(invalid="ignore"):  # inf - inf is NaN, which the next round reports
            to_first, to_second = np.flatnonzero((y < 0) & (z >= 0)), np.flatnonzero((z < 0) & (y >= 0))
            gain = np.where(z[to_first] == 1, links.back[to_first], -links.ahead[to_first])
            np.add.at(bias, links.first[to_first], gain)
            gain = np.where(y[to_second] == 1, links.ahead[to_second], -links.back[to_second])
            np.add.at(bias, links.second[to_second], gain)
        links = links[np.flatnonzero((y < 0) & (z < 0))]
        settled, forced = one | zero, (labels < 0) & ~np.isfinite(bias)
        active = settled.reshape(-1, n_sites).sum(axis=1, keepdims=True) > WORTHWHILE * n_sites
        active |= forced.reshape(-1, n_sites).any(axis=1, keepdims=True)
    return links


def _cut(bias: Array, links: _Links, image: Array) -> npt.NDArray[np.int64]:
    """Return the labels of a minimum cut.  ``image`` (n,) is the image of each site.

    Capacities are scaled by a power of two per image and rounded down to integers, so at most one unit of flow per link
    is lost.  The lost flow is at most the residual capacity of the cut.  Further rounds search for it in finer units,
    until cut and flow agree to :data:`GAP`.
    """
    n_sites = len(bias)
    group = np.concatenate([image, image[links.first]])
    # Each site is linked to the source (label 1) or the sink (label 0); forward is away from the source.
    source, sink = n_sites, n_sites + 1
    site = np.arange(n_sites)
    tail = np.concatenate([np.where(bias > 0, source, site), links.first])
    head = np.concatenate([np.where(bias > 0, site, sink), links.second])
    forward = np.concatenate([np.abs(bias), links.ahead])
    backward = np.concatenate([np.zeros(n_sites), links.back])
    network = _Network(tail, head, n_sites + 2)

    inflow = np.bincount(image, np.maximum(bias, 0))
    outflow = np.bincount(image, np.maximum(-bias, 0), len(inflow))
    most = np.minimum(inflow, outflow)  # upper bound of the remaining flow
    most = np.where(most > 0, most, np.maximum(inflow, outflow))  # without flow, the cut remains to be found
    total = np.zeros_like(most)
    labels = np.zeros(n_sites + 2, np.int64)
    labels[source] = 1
    active = most > TINY
    for _ in range(ROUNDS):
        if not active.any():
            break
        limit = np.where(active, 2 * most, 0.0)[group]  # larger capacities are never exhausted
        ahead, back = np.minimum(forward, limit), np.minimum(backward, limit)
        largest = np.zeros_like(most)
        np.maximum.at(largest, group, np.maximum(ahead, back))
        scale = np.exp2(np.floor(np.log2(CAPACITY / np.where(active, largest, 1.0))))[group]
        flow, reached = network.solve(np.floor(ahead * scale), np.floor(back * scale), source, sink)
        flow /= scale
        forward -= flow
        backward += flow
        labels[:n_sites] = np.where(active[image], reached[:n_sites], labels[:n_sites])
        total += np.bincount(group, np.where(tail == source, flow, 0.0), len(most))
        y, z = labels[tail], labels[head]
        most = np.bincount(group, np.where(y > z, forward, 0.0) + np.where(y < z, backward, 0.0), len(most))
        active &= most > np.maximum(GAP * total, TINY)
    return labels[:n_sites]


class _Network:
    """Flow network, solved by SciPy."""

    def __init__(self, tail: Array, head: Array, n_nodes: int) -> None:
        self.tail, self.head, self.n_nodes = tail, head, n_nodes

    def solve(self, ahead: Array, back: Array, source: int, sink: int) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return the net flow over each link, and the nodes reachable from the source in the residual network."""
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        flow = maximum_flow(self._matrix(ahead, back), source, sink, method="dinic").flow
        flow.sort_indices()
        # SciPy lists only links of positive capacity.
        rows = np.repeat(np.arange(self.n_nodes), np.diff(flow.indptr))
        listed, wanted = rows * self.n_nodes + flow.indices, self.tail * self.n_nodes + self.head
        place = np.minimum(np.searchsorted(listed, wanted), max(len(listed) - 1, 0))
        net = np.where(listed[place] == wanted, flow.data[place], 0)
        reached = np.zeros(self.n_nodes, np.bool_)
        reached[breadth_first_order(self._matrix(ahead - net, back + net), source, return_predecessors=False)] = True
        return net.astype(np.float64), reached

    def _matrix(self, ahead: Array, back: Array) -> Any:
        from scipy.sparse import csr_array

        values, ends = np.concatenate([ahead, back]).astype(np.int32), (self.tail, self.head)
        rows, columns = np.concatenate(ends), np.concatenate(ends[::-1])
        some = values > 0
        return csr_array((values[some], (rows[some], columns[some])), (self.n_nodes, self.n_nodes))
