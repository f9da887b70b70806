"""The lower bound that mean field maximises: ``log Z >= E_q[θ(y)] + entropy of q``, for any independent q.

Probability 0 times a score of -inf counts as 0.  Positive probability of a forbidden pair makes the bound -inf.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables


def mean_field_bound(model: Model, beliefs: Array, terms: Array, lo: int, hi: int, begin: int, stop: int) -> None:
    """Fill ``terms`` (N, S): each site's own term plus those of the edges whose first end it is; beliefs (N, S, L)."""
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            q = beliefs[n, i]
            held = q > 0
            terms[n, i] = (q[held] * (model.unary[n, i, held] - np.log(q[held]))).sum()
            for slot in range(model.indptr[i], model.indptr[i + 1]):
                if model.end[slot] == 0:
                    joint = np.outer(q, beliefs[n, model.neighbour[slot]])
                    table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
                    terms[n, i] += (joint[joint > 0] * table[joint > 0]).sum()
