"""A labelling from max-product messages, site after site; see the reference."""

from __future__ import annotations

import numpy as np
from numba import njit

from locpmap.kernels.numba.scores import best_label


@njit(nogil=True, cache=True, error_model="numpy")
def decode_messages(model, order, messages, labels, lo, hi):
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L)."""
    for n in range(lo, hi):
        decode(model, n, model.unary[n], order, messages[n], labels[n])


@njit(nogil=True, error_model="numpy")
def decode(model, n, unary, order, messages, y):
    """One image; ``y`` (S,) is filled.  Ties go to the smallest label."""
    potts, features, tables = model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    n_labels = unary.shape[1]
    scores = np.empty(n_labels)
    n_features, n_tables = (n if len(features) > 1 else 0), (n if len(tables) > 1 else 0)
    many_features, many_tables = features.shape[1] > 1, tables.shape[1] > 1
    y[:] = -1
    for i in order:
        for k in range(n_labels):
            scores[k] = unary[i, k]
        for slot in range(indptr[i], indptr[i + 1]):
            label = y[neighbour[slot]]
            e_features, e_tables = (edges[slot] if many_features else 0), (edges[slot] if many_tables else 0)
            if label < 0:
                for k in range(n_labels):
                    scores[k] += messages[slot, k]
            elif potts:
                scores[label] += features[n_features, e_features, 0]
            else:
                for f in range(features.shape[2]):
                    for k in range(n_labels):
                        first, second = (k, label) if ends[slot] == 0 else (label, k)
                        scores[k] += features[n_features, e_features, f] * tables[n_tables, e_tables, f, first, second]
        y[i] = best_label(scores, 0)
        if scores[y[i]] == -np.inf:
            y[i] = best_label(unary[i], 0)
