"""Numba version of `reference.mean_field`.  A visit reads (degree + 2)·L values, a skipped site one byte."""

import numpy as np

from locpmap.kernels.numba.bits import all_zero
from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.softmax_rows import softmax
from locpmap.kernels.reference.mean_field import FORBIDDEN


@kernel
def mean_field(model, beliefs, dirty, tolerance, lo, hi, begin, stop):
    """Update images lo..hi at positions begin..stop of the model's order; beliefs (N, S, L)."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    n_labels = beliefs.shape[2]
    fresh = np.empty(n_labels, beliefs.dtype)
    tolerance = fresh.dtype.type(tolerance)
    for n in range(lo, hi):
        if all_zero(dirty[n]):
            continue
        for position in range(begin, stop):
            i = order[position]
            if dirty[n, i] == 0:
                continue
            first_visit = dirty[n, i] > 1
            dirty[n, i] = 0
            for k in range(n_labels):
                fresh[k] = unary[n, i, k]
            for slot in range(indptr[i], indptr[i + 1]):
                edge, j = edges[slot], neighbour[slot]
                if potts:
                    weight = fresh.dtype.type(potts_weight(features, n, edge))
                    for k in range(n_labels):
                        fresh[k] += weight * beliefs[n, j, k]
                    continue
                for k in range(n_labels):
                    for other in range(n_labels):
                        score = table_score(features, tables, n, edge, ends[slot], k, other)
                        fresh[k] += beliefs[n, j, other] * (score if score > -np.inf else FORBIDDEN)
            softmax(fresh)
            moved = 0
            for k in range(n_labels):
                moved += abs(fresh[k] - beliefs[n, i, k]) > tolerance
            if moved or first_visit:
                for k in range(n_labels):
                    beliefs[n, i, k] = fresh[k]
                for slot in range(indptr[i], indptr[i + 1]):
                    dirty[n, neighbour[slot]] |= 1
