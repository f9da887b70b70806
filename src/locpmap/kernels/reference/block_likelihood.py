"""Negative log of the conditionals ``p(y_β | y_¬β)`` of blocks, and its slopes.

The derivative by a score inside the block is the probability of its labels given y_¬β, less 1 where they are the true
ones.  Enumerated blocks sum over their labellings.  In a forest, sums from the leaves up turn the scores into
``p(root) Π p(site | parent)``; products from the root down turn those into marginals.  Void sites are out of their
block, which splits a chain there.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.observations import Observations
from locpmap.kernels.reference.linear_scores import add_pair_slope, add_site_slope, pair_table, site_features

Array = npt.NDArray[Any]
Pairs = dict[tuple[int, int], Array]  # (j, k) -> (L, L), the edges inside a block by the positions of their ends


def block_likelihood(
    data: Observations,
    plan: BlockPlan,
    labels: Array,
    image_weights: Array,
    weights: Array,
    tables: Array,
    value: Array,
    slope: Array,
    table_slope: Array,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Add the loss and its slopes for images lo..hi and blocks begin..stop.

    ``value`` is (1,), ``slope`` (D + 1, L), ``table_slope`` (G, F, L, L).  ``labels`` (N, S) are -1 where
    void; ``image_weights`` is (1|N,).
    """
    each = np.eye(weights.shape[1])
    for n in range(lo, hi):
        weight = image_weights[n if len(image_weights) > 1 else 0]
        for b in range(begin, stop):
            block = slice(plan.ptr[b], plan.ptr[b + 1])
            present = [j for j, site in enumerate(plan.site[block]) if labels[n, site] >= 0]
            place = {int(plan.site[block][j]): j for j in present}
            local = {j: site_features(data, n, i) @ weights for i, j in place.items()}
            pairs: Pairs = {}
            inner, outer = [], []  # (j, k, slot) and (j, label, slot)
            for i, j in place.items():
                for slot in range(data.indptr[i], data.indptr[i + 1]):
                    other = int(data.neighbour[slot])
                    table = pair_table(data, tables, n, slot)
                    if other not in place:
                        if labels[n, other] >= 0:
                            local[j] += table[:, labels[n, other]]
                            outer.append((j, labels[n, other], slot))
                    elif place[other] < j:
                        pairs[j, place[other]] = table
                        inner.append((j, place[other], slot))
            true = {j: int(labels[n, i]) for i, j in place.items()}
            loss, nodes, edges = (by_enumeration if plan.joint[b] else by_elimination)(local, pairs, true)
            value[0] += weight * loss
            residual = {j: weight * (nodes[j] - each[true[j]]) for j in present}
            for i, j in place.items():
                add_site_slope(data, n, i, residual[j], slope)
            for j, label, slot in outer:
                add_pair_slope(data, n, slot, np.outer(residual[j], each[label]), table_slope)
            for j, k, slot in inner:
                difference = weight * (edges[j, k] - np.outer(each[true[j]], each[true[k]]))
                add_pair_slope(data, n, slot, difference, table_slope)


def by_enumeration(
    local: dict[int, Array], pairs: Pairs, true: dict[int, int]
) -> tuple[float, dict[int, Array], Pairs]:
    """``-log p(true)`` and the marginals of nodes and edges, from all joint labellings."""
    nodes = {j: np.zeros_like(scores) for j, scores in local.items()}
    edges = {pair: np.zeros_like(table) for pair, table in pairs.items()}
    n_labels = next((len(scores) for scores in local.values()), 0)
    labellings = [dict(zip(local, y, strict=True)) for y in product(range(n_labels), repeat=len(local))]
    scores = np.array(
        [
            sum(local[j][y[j]] for j in local) + sum(table[y[j], y[k]] for (j, k), table in pairs.items())
            for y in labellings
        ]
    )
    log_partition = np.logaddexp.reduce(scores)
    for y, probability in zip(labellings, np.exp(scores - log_partition), strict=True):
        for j in local:
            nodes[j][y[j]] += probability
        for j, k in pairs:
            edges[j, k][y[j], y[k]] += probability
    return float(log_partition - scores[labellings.index(true)]), nodes, edges


def by_elimination(
    local: dict[int, Array], pairs: Pairs, true: dict[int, int]
) -> tuple[float, dict[int, Array], Pairs]:
    """The same of a forest whose sites come after their parents: site · L² operations."""
    parent = dict(pairs.keys())
    belief = {j: scores.copy() for j, scores in local.items()}
    conditional: dict[int, Array] = {}  # of a site given its parent (L, L), of a root (L, 1)
    loss = 0.0
    for j in reversed(list(local)):
        up = parent.get(j)
        scores = belief[j][:, None] + (pairs[j, up] if up is not None else 0.0)
        log_sum = np.logaddexp.reduce(scores, axis=0)
        if up is not None:
            belief[up] += log_sum
        conditional[j] = np.exp(scores - log_sum)
        given = true[up] if up is not None else 0
        loss += log_sum[given] - scores[true[j], given]
    nodes: dict[int, Array] = {}
    edges: Pairs = {}
    for j in local:
        up = parent.get(j)
        joint = conditional[j] * (nodes[up] if up is not None else 1.0)
        nodes[j] = joint.sum(axis=1)
        if up is not None:
            edges[j, up] = joint
    return float(loss), nodes, edges
