"""Conditional (Rao-Blackwell) probabilities: the softmax of local scores given a sample's other labels.

Sums are kept as whole numbers of 2^-40, so that they do not depend on the order in which samples arrive.
"""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import UNIT, Model
from locpmap.kernels.reference.scores import local_scores


def conditionals(model: Model, labels: Array, sums: Array, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` of images lo.. and sites begin..stop; labels (n, S, R), sums (n, S, L) int64."""
    for n in range(len(labels)):
        for s in range(labels.shape[2]):
            y = labels[n, :, s].astype(np.int64)
            scores = local_scores(model, y, lo + n)[begin:stop]
            # Where hard pairs leave a site no label, the sample's own has to do.
            stuck = np.flatnonzero(scores.max(axis=1) == -np.inf)
            scores[stuck, y[begin:stop][stuck]] = 0
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            sums[n, begin:stop] += np.rint(weights / weights.sum(axis=1, keepdims=True) * UNIT).astype(np.int64)
