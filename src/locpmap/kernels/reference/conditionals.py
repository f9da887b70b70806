"""Conditional (Rao-Blackwell) probabilities: the softmax of a site's local scores given the sample's other labels.

Sums are integers in units of 2^-40, so they do not depend on the order of the samples.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import UNIT, Model
from locpmap.kernels.reference.scores import local_scores


def conditionals(model: Model, labels: Array, sums: Array, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` at sites begin..stop of images lo.. to sums (n, S, L) int64; labels (n, S, R)."""
    for n in range(len(labels)):
        for s in range(labels.shape[2]):
            y = labels[n, :, s].astype(np.int64)
            scores = local_scores(model, y, lo + n)[begin:stop]
            # If hard constraints forbid every label of a site, the sample's label gets probability 1.
            stuck = np.flatnonzero(scores.max(axis=1) == -np.inf)
            scores[stuck, y[begin:stop][stuck]] = 0
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            sums[n, begin:stop] += np.rint(weights / weights.sum(axis=1, keepdims=True) * UNIT).astype(np.int64)
