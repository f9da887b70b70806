"""Negative log of the conditionals ``p(y_β | y_¬β)`` of blocks β, and its derivatives.

The derivative with respect to a score inside the block is the probability of its labels given y_¬β, minus 1 for the
true labels.  Small blocks are solved by enumerating their labellings, other blocks by dynamic programming on a forest:
sums from the leaves up factorise the distribution into ``p(root) Π p(site | parent)``; products from the root down give
the marginals.  Void sites are removed from their block, which splits a chain there.
"""

from itertools import product

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.reference.pair_gradient import add_edge_gradient, pair_table

Pairs = dict[tuple[int, int], Array]  # (j, k) -> (L, L) for edges inside a block, by the positions of their ends


def block_likelihood(
    scores: Scores, plan: BlockPlan, labels: Array, weights: Array, losses: Losses, part: Part
) -> None:
    """Write the losses (N, B) and residuals (N, S, 1, L) of the blocks of a part.

    Add the derivative with respect to the pairwise scores of edges inside the blocks to ``losses.gradient``.
    ``labels`` (N, S) are -1 at void sites.  ``weights`` (1|N,) multiply losses and derivatives.
    """
    each = np.eye(scores.unary.shape[2])
    value, residual, gradient = losses
    for n in range(part.lo, part.hi):
        weight = weights[n if len(weights) > 1 else 0]
        for b in range(part.begin, part.stop):
            block = plan.site[plan.ptr[b] : plan.ptr[b + 1]]
            residual[n, block] = 0
            place = {int(site): j for j, site in enumerate(block) if labels[n, site] >= 0}
            local = {j: scores.unary[n, i].astype(np.float64) for i, j in place.items()}
            pairs: Pairs = {}
            inner = []  # (j, k, slot)
            for i, j in place.items():
                for slot in range(scores.indptr[i], scores.indptr[i + 1]):
                    other = int(scores.neighbour[slot])
                    table = pair_table(scores, n, slot)
                    if other not in place:
                        if labels[n, other] >= 0:
                            local[j] += table[:, labels[n, other]]
                    elif place[other] < j:
                        pairs[j, place[other]] = table
                        inner.append((j, place[other], slot))
            true = {j: int(labels[n, i]) for i, j in place.items()}
            loss, nodes, edges = (by_enumeration if plan.joint[b] else by_elimination)(local, pairs, true)
            value[n, b] = weight * loss
            for i, j in place.items():
                residual[n, i, 0] = weight * (nodes[j] - each[true[j]])
            for j, k, slot in inner:
                derivative = weight * (edges[j, k] - np.outer(each[true[j]], each[true[k]]))
                derivative = derivative if scores.end[slot] == 0 else derivative.T
                add_edge_gradient(scores, n, scores.edge[slot], derivative, gradient)


def by_enumeration(
    local: dict[int, Array], pairs: Pairs, true: dict[int, int]
) -> tuple[float, dict[int, Array], Pairs]:
    """Return ``-log p(true)`` and the marginals of nodes and edges by enumerating all joint labellings."""
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
    """Return ``-log p(true)`` and the marginals of a forest, parents listed first, in O(sites · L²)."""
    parent = dict(pairs.keys())
    belief = {j: scores.copy() for j, scores in local.items()}
    conditional: dict[int, Array] = {}  # p(site | parent) (L, L), or p(root) (L, 1)
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
