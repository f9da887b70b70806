"""Conditional probabilities of samples, summed in whole numbers of 2^-40; see the reference."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.scores import add_neighbours
from locpmap.kernels.reference.conditionals import UNIT


@njit(nogil=True, cache=True, error_model="numpy")
def conditionals(model, labels, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, L) int64 for sites begin..stop; labels (n, S, R).  R·(degree + L) per site."""
    n_labels = sums.shape[2]
    scores = np.empty(n_labels)
    for n in range(labels.shape[0]):
        for i in range(begin, stop):
            for s in range(labels.shape[2]):
                scores[:] = model.unary[lo + n, i]
                add_neighbours(scores, model, lo + n, i, labels[n, :, s])
                top = scores.max()
                total = 0.0
                for k in range(n_labels):
                    scores[k] = math.exp(scores[k] - top)
                    total += scores[k]
                for k in range(n_labels):
                    sums[n, i, k] += np.int64(np.rint(scores[k] / total * UNIT))
