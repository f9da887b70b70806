"""Mean field; see the reference.  A visit reads (degree + 2)·L values; a site that nothing moved costs one byte."""

from __future__ import annotations

import numpy as np
from numba import njit

from locpmap.kernels.numba.softmax import softmax
from locpmap.kernels.reference.mean_field import FORBIDDEN


@njit(nogil=True, cache=True, error_model="numpy")
def mean_field(model, beliefs, dirty, tolerance, lo, hi, begin, stop):
    """Update images lo..hi at positions begin..stop of the model's order; beliefs (N, S, L)."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    n_labels = beliefs.shape[2]
    fresh = np.empty(n_labels, beliefs.dtype)
    tolerance = fresh.dtype.type(tolerance)
    many_features, many_tables = features.shape[1] > 1, tables.shape[1] > 1
    for n in range(lo, hi):
        n_features, n_tables = (n if len(features) > 1 else 0), (n if len(tables) > 1 else 0)
        for position in range(begin, stop):
            i = order[position]
            if not dirty[n, i]:
                continue
            dirty[n, i] = False
            for k in range(n_labels):
                fresh[k] = unary[n, i, k]
            for slot in range(indptr[i], indptr[i + 1]):
                j = neighbour[slot]
                e_features, e_tables = (edges[slot] if many_features else 0), (edges[slot] if many_tables else 0)
                if potts:
                    weight = fresh.dtype.type(features[n_features, e_features, 0])
                    for k in range(n_labels):
                        fresh[k] += weight * beliefs[n, j, k]
                    continue
                for f in range(features.shape[2]):
                    x = features[n_features, e_features, f]
                    for k in range(n_labels):
                        expected = 0.0
                        for other in range(n_labels):
                            first, second = (k, other) if ends[slot] == 0 else (other, k)
                            expected += beliefs[n, j, other] * max(tables[n_tables, e_tables, f, first, second], FORBIDDEN)
                        fresh[k] += x * expected
            softmax(fresh)
            moved = 0
            for k in range(n_labels):
                moved += abs(fresh[k] - beliefs[n, i, k]) > tolerance
            if moved:
                for k in range(n_labels):
                    beliefs[n, i, k] = fresh[k]
                for slot in range(indptr[i], indptr[i + 1]):
                    dirty[n, neighbour[slot]] = True
