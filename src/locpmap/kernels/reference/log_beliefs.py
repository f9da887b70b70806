"""What each site believes, given the messages: normalised logarithms of its beliefs."""

from __future__ import annotations

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
    """Fill ``beliefs`` (N, S, L), and ``normalisers`` (N, S) with what normalising took from them.

    A site whose every label is forbidden (no labelling is allowed) has normaliser -inf and believes in its unaries.
    """
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            whole = belief(model, model.unary[n], messages[n], rho, i)
            stuck = whole.max() == -np.inf
            if stuck:
                whole = model.unary[n, i].astype(np.float64)
            # The largest goes first: next to scores of 1e12 and more, the logarithm of a sum is lost in rounding.
            top = whole.max()
            log_sum = np.log(np.exp(whole - top).sum())
            beliefs[n, i] = whole - top - log_sum
            normalisers[n, i] = -np.inf if stuck else top + log_sum
