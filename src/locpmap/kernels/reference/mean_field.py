"""Mean field: approximate the distribution by independent sites, each the softmax of its expected score.

``q_i(a) ∝ exp(unary_i(a) + Σ_j Σ_b q_j(b) θ_e[a, b])``, one colour class after another.  Sites of a class are not
neighbours, so every update is exact coordinate ascent on the lower bound of log Z (see `mean_field_bound`).
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import CHANGED, Model
from locpmap.kernels.reference.scores import edge_tables

# Replaces -inf in tables.  With -inf, a site could have expected score -inf for every label; with a finite value it
# takes the labels with the least forbidden probability.
FORBIDDEN = -1e9


def mean_field(
    model: Model, beliefs: Array, dirty: Array, tolerance: float, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order.

    ``beliefs`` (N, S, L) are updated in place.  ``dirty`` (N, S) marks the sites with a neighbour that changed since
    their last update; only these are visited.  A belief is left unchanged if it would move by at most the tolerance.
    """
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            if not dirty[n, i]:
                continue
            first_visit = dirty[n, i] > CHANGED
            dirty[n, i] = 0
            scores = model.unary[n, i].astype(np.float64)
            slots = range(model.indptr[i], model.indptr[i + 1])
            for slot in slots:
                table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
                table = np.where(table > -np.inf, table, FORBIDDEN)
                scores += (table.T if model.end[slot] else table) @ beliefs[n, model.neighbour[slot]].astype(np.float64)
            weights = np.exp(scores - scores.max())
            fresh = (weights / weights.sum()).astype(beliefs.dtype)
            if first_visit or (np.abs(fresh - beliefs[n, i]) > tolerance).any():
                beliefs[n, i] = fresh
                dirty[n, model.neighbour[slots]] |= CHANGED
