"""Numba version of `reference.log_beliefs`: normalised log beliefs."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import kernel


@kernel
def log_beliefs(model, messages, rho, beliefs, normalisers, lo, hi, begin, stop):
    """Fill ``beliefs`` (N, S, L) and ``normalisers`` (N, S), the constants subtracted from the log beliefs."""
    unary, order, indptr, edge = model.unary, model.order, model.indptr, model.edge
    n_labels = unary.shape[2]
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            top = -np.inf
            for k in range(n_labels):
                received = 0.0
                for slot in range(indptr[i], indptr[i + 1]):
                    received += rho[edge[slot]] * messages[n, slot, k]
                beliefs[n, i, k] = unary[n, i, k] + received
                top = max(top, beliefs[n, i, k])
            stuck = top == -np.inf
            if stuck:
                for k in range(n_labels):
                    beliefs[n, i, k] = unary[n, i, k]
                    top = max(top, beliefs[n, i, k])
            total = 0.0
            for k in range(n_labels):
                beliefs[n, i, k] -= top
                total += math.exp(beliefs[n, i, k])
            log_sum = math.log(total)
            for k in range(n_labels):
                beliefs[n, i, k] -= log_sum
            normalisers[n, i] = -np.inf if stuck else top + log_sum
