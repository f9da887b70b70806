"""The optimal expansion move: any set of sites changes to one label, by a minimum cut.

A site's *choice* is 1 if it changes to α, else 0.  The best choices x maximise::

    Σ_i bias[i] x_i - Σ_(i,j) ( ahead[e] [x_i = 1, x_j = 0] + back[e] [x_i = 0, x_j = 1] )

with ``ahead, back >= 0``, where infinite values are hard constraints.  For two labels the move from label 0 everywhere
to label 1 is the best labelling.
"""

from collections import deque

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables


def expand(model: Model, labels: Array, alpha: int, images: Array, gains: Array, lo: int, hi: int) -> None:
    """Change sites of ``images[lo:hi]`` to ``alpha`` in ``labels`` (N, S) by the optimal move, if the score improves.

    ``gains`` (len(images),) are set to the improvements, or to NaN if all choices are forbidden.
    """
    first, second = model.edges.T
    every = np.arange(len(model.edges))
    for k in range(lo, hi):
        n, y = images[k], labels[images[k]]
        unary = np.stack([model.unary[n, np.arange(len(y)), y], model.unary[n, :, alpha]], axis=1).astype(np.float64)
        tables = edge_tables(model, n, every)
        ends = np.stack([y[first], np.full(len(first), alpha)]), np.stack([y[second], np.full(len(second), alpha)])
        tables = tables[every[:, None, None], ends[0].T[:, :, None], ends[1].T[:, None, :]]  # (E, 2, 2)
        forbidden = unary[model.edges] == -np.inf  # (E, 2 ends, 2 choices)
        pairs = np.where(forbidden[:, 0, :, None] | forbidden[:, 1, None, :], -np.inf, tables)
        bias, ahead, back = _terms(unary, pairs, model.edges)
        choice = _best_choices(bias, model.edges, ahead, back)
        before = np.concatenate([unary[:, 0], tables[:, 0, 0]])
        after = np.concatenate([unary[np.arange(len(y)), choice], tables[every, choice[first], choice[second]]])
        if np.isneginf(after).any():
            gains[k] = np.nan
        elif np.isneginf(before).any():
            gains[k] = np.inf
        else:  # term by term: the sums may be too large to show the difference
            gains[k] = max((after - before).sum(), 0.0)
        if gains[k] > 0:
            y[choice == 1] = alpha


def _terms(unary: Array, tables: Array, edges: Array) -> tuple[Array, Array, Array]:
    """Convert unaries (S, 2) and attractive tables (E, 2, 2) to biases and links.

    A finite table equals two biases minus half of ``s00 + s11 - s01 - s10`` wherever the choices differ.  If a score is
    -inf, biases express the other scores (at most three).  A forbidden pair becomes an infinite link, or an infinite
    bias if it determines the choice of an end.
    """
    (s00, s01), (s10, s11) = tables.transpose(1, 2, 0)
    ok00, ok01, ok10, ok11 = (s > -np.inf for s in (s00, s01, s10, s11))
    whole = ok00 & ok01 & ok10 & ok11
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, in sites without an allowed choice
        half = np.maximum(s00 + s11 - s01 - s10, 0.0) / 2
        first = np.select(
            [whole, ok00 & ok10, ok01 & ok11, ok00 & ok11],
            [(s10 + s11 - s00 - s01) / 2, s10 - s00, s11 - s01, s11 - s00],
        )
        second = np.select([whole, ok00 & ok01, ok10 & ok11], [(s01 + s11 - s00 - s10) / 2, s01 - s00, s11 - s10])
        first += np.where(ok00 | ok01, 0.0, np.inf) - np.where(ok10 | ok11, 0.0, np.inf)
        second += np.where(ok00 | ok10, 0.0, np.inf) - np.where(ok01 | ok11, 0.0, np.inf)
        bias = unary[:, 1] - unary[:, 0]
        np.add.at(bias, edges[:, 0], first)
        np.add.at(bias, edges[:, 1], second)
    return bias, np.select([whole, ok10], [half, 0.0], np.inf), np.select([whole, ok01], [half, 0.0], np.inf)


def _best_choices(bias: Array, edges: Array, ahead: Array, back: Array) -> Array:
    """Return the choices (S,): 1 on the source's side of the minimum cut, found by shortest augmenting paths."""
    source, sink = len(bias), len(bias) + 1
    left: list[dict[int, float]] = [{} for _ in range(len(bias) + 2)]  # residual capacities from each node
    links = list(zip(*edges.T.tolist(), ahead.tolist(), back.tolist(), strict=True))
    links += [(source, i, b, 0.0) for i, b in enumerate(bias.tolist()) if b > 0]
    links += [(i, sink, -b, 0.0) for i, b in enumerate(bias.tolist()) if b < 0]
    for i, j, there, here in links:
        left[i][j] = left[i].get(j, 0.0) + there
        left[j][i] = left[j].get(i, 0.0) + here
    while True:
        parent = _search(left, source, sink)
        if sink not in parent:
            break
        path = [sink]
        while path[-1] != source:
            path.append(parent[path[-1]])
        steps = list(zip(path[1:], path[:-1], strict=True))
        amount = min(left[i][j] for i, j in steps)
        if amount == np.inf:
            break
        for i, j in steps:
            left[i][j] -= amount
            left[j][i] += amount
    return np.array([int(i in parent) for i in range(len(bias))], np.int64)


def _search(left: list[dict[int, float]], source: int, sink: int) -> dict[int, int]:
    """Return the nodes reached from the source, with their parents, by breadth-first search until the sink."""
    parent, waiting = {source: source}, deque([source])
    while waiting and sink not in parent:
        i = waiting.popleft()
        for j, capacity in left[i].items():
            if capacity > 0 and j not in parent:
                parent[j] = i
                waiting.append(j)
    return parent
