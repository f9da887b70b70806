"""Numba version of `reference.mean_field_bound`: the lower bound that mean field maximises."""

import math

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score


@kernel
def mean_field_bound(model, beliefs, terms, lo, hi, begin, stop):
    """Fill ``terms`` (N, S): each site's own term plus those of the edges whose first end it is."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    n_labels = beliefs.shape[2]
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            total = 0.0
            for k in range(n_labels):
                if beliefs[n, i, k] > 0:
                    total += beliefs[n, i, k] * (unary[n, i, k] - math.log(beliefs[n, i, k]))
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] != 0:
                    continue
                edge, j = edges[slot], neighbour[slot]
                if potts:
                    agree = 0.0
                    for k in range(n_labels):
                        agree += beliefs[n, i, k] * beliefs[n, j, k]
                    total += potts_weight(features, n, edge) * agree
                    continue
                for a in range(n_labels):
                    for b in range(n_labels):
                        joint = beliefs[n, i, a] * beliefs[n, j, b]
                        if joint > 0:
                            total += joint * table_score(features, tables, n, edge, 0, a, b)
            terms[n, i] = total
