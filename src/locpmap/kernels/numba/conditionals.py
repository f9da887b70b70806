"""Numba version of `reference.conditionals`: conditional probabilities, summed as integers in units of 2^-40."""

import math

import numpy as np
from numba import njit

from locpmap.kernels.model import UNIT
from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score


@kernel
def conditionals(model, labels, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, L) int64 at sites begin..stop; consecutive equal samples share one computation."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    n_labels, n_samples = sums.shape[2], labels.shape[2]
    scores = np.empty(n_labels)
    for n in range(labels.shape[0]):
        for i in range(begin, stop):
            first, degree = indptr[i], indptr[i + 1] - indptr[i]
            s = 0
            while s < n_samples:
                last = s + 1
                while last < n_samples and _same(labels, neighbour, n, first, degree, s, last):
                    last += 1
                for k in range(n_labels):
                    scores[k] = unary[lo + n, i, k]
                for slot in range(first, first + degree):
                    edge, label = edges[slot], labels[n, neighbour[slot], s]
                    if potts:
                        scores[label] += potts_weight(features, lo + n, edge)
                        continue
                    for k in range(n_labels):
                        scores[k] += table_score(features, tables, lo + n, edge, ends[slot], k, label)
                top = scores[0]
                for k in range(1, n_labels):
                    top = max(top, scores[k])
                if top == -np.inf:  # hard constraints forbid every label: take the sample's
                    for sample in range(s, last):
                        sums[n, i, labels[n, i, sample]] += np.int64(UNIT)
                    s = last
                    continue
                total = 0.0
                for k in range(n_labels):
                    scores[k] = math.exp(scores[k] - top)
                    total += scores[k]
                for k in range(n_labels):
                    sums[n, i, k] += (last - s) * np.int64(np.rint(scores[k] / total * UNIT))
                s = last


@njit(inline="always", error_model="numpy")
def _same(labels, neighbour, n, first, degree, s, other):
    """Return whether two samples agree at all neighbours of a site."""
    for slot in range(first, first + degree):
        if labels[n, neighbour[slot], s] != labels[n, neighbour[slot], other]:
            return False
    return True
