"""Numba version of `reference.decode_messages`: sequential decoding of max-product messages."""

import numpy as np

from locpmap.kernels.numba.compiling import allocating, inner, kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score


@kernel
def decode_messages(model, order, messages, labels, lo, hi):
    """Fill ``labels`` (N, S) of images lo..hi in the given order; messages (N, 2E, L)."""
    for n in range(lo, hi):
        decode(model, n, model.unary[n], order, messages[n], labels[n])


@allocating
def decode(model, n, unary, order, messages, y):
    """Fill ``y`` (S,) for one image; ties go to the smallest label."""
    potts, features, tables = model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    n_labels = unary.shape[1]
    scores = np.empty(n_labels)
    y[:] = -1
    for i in order:
        for k in range(n_labels):
            scores[k] = unary[i, k]
        for slot in range(indptr[i], indptr[i + 1]):
            edge, label = edges[slot], y[neighbour[slot]]
            if label < 0:
                for k in range(n_labels):
                    scores[k] += messages[slot, k]
            elif potts:
                scores[label] += potts_weight(features, n, edge)
            else:
                for k in range(n_labels):
                    scores[k] += table_score(features, tables, n, edge, ends[slot], k, label)
        y[i] = best_label(scores)
        if scores[y[i]] == -np.inf:
            y[i] = best_label(unary[i])


@inner
def best_label(scores):
    """Return the smallest label of maximum score."""
    best = 0
    for k in range(1, len(scores)):
        best = k if scores[k] > scores[best] else best
    return best
