"""Conditional probabilities of samples, summed in whole numbers of 2^-40; see the reference."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.reference.conditionals import UNIT


@njit(nogil=True, cache=True, error_model="numpy")
def conditionals(model, labels, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, L) int64 for sites begin..stop; labels (n, S, R).  R·(degree + L) per site."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    n_labels = sums.shape[2]
    scores = np.empty(n_labels)
    for n in range(labels.shape[0]):
        for i in range(begin, stop):
            for s in range(labels.shape[2]):
                for k in range(n_labels):
                    scores[k] = unary[lo + n, i, k]
                for slot in range(indptr[i], indptr[i + 1]):
                    edge, label = edges[slot], labels[n, neighbour[slot], s]
                    if potts:
                        scores[label] += potts_weight(features, lo + n, edge)
                        continue
                    for k in range(n_labels):
                        scores[k] += table_score(features, tables, lo + n, edge, ends[slot], k, label)
                top = scores[0]
                for k in range(1, n_labels):
                    top = max(top, scores[k])
                if top == -np.inf:  # hard pairs leave the site no label: the sample's own has to do
                    sums[n, i, labels[n, i, s]] += np.int64(UNIT)
                    continue
                total = 0.0
                for k in range(n_labels):
                    scores[k] = math.exp(scores[k] - top)
                    total += scores[k]
                for k in range(n_labels):
                    sums[n, i, k] += np.int64(np.rint(scores[k] / total * UNIT))
