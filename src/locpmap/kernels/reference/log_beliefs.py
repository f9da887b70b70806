"""Normalised log beliefs of every site, given the messages."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.messages import belief


def log_beliefs(
    model: Model,
    messages: Array,
    rho: Array,
    beliefs: Array,
    normalisers: Array,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``beliefs`` (N, S, L) and ``normalisers`` (N, S), the constants subtracted from the log beliefs.

    If every label of a site is forbidden, its normaliser is -inf and its belief is the softmax of its unaries.
    """
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            whole = belief(model, model.unary[n], messages[n], rho, i)
            stuck = whole.max() == -np.inf
            if stuck:
                whole = model.unary[n, i].astype(np.float64)
            # Subtract the maximum first: next to scores above 1e12, the log-sum would be lost in rounding.
            top = whole.max()
            log_sum = np.log(np.exp(whole - top).sum())
            beliefs[n, i] = whole - top - log_sum
            normalisers[n, i] = -np.inf if stuck else top + log_sum
