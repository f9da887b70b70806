"""Conditional probabilities (see `conditionals`) on a volume with Potts weights, without lists of neighbours."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import UNIT
from locpmap.kernels.perturbation import VolumeLinks
from locpmap.kernels.reference.climb_volume import agreement


def volume_conditionals(
    unary: Array, links: VolumeLinks, labels: Array, sums: Array, lo: int, begin: int, stop: int
) -> None:
    """Add ``p(· | other labels)`` at sites begin..stop of images lo.. to sums (n, S, L) int64; labels (n, S, R)."""
    for n in range(len(labels)):
        for s in range(labels.shape[2]):
            y = labels[n, :, s].astype(np.int64)
            scores = (unary[lo + n] + agreement(links, lo + n, y, unary.shape[2]))[begin:stop]
            # If error fields remove the only label of a masked site, the sample's label gets probability 1.
            stuck = np.flatnonzero(scores.max(axis=1) == -np.inf)
            scores[stuck, y[begin:stop][stuck]] = 0
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            sums[n, begin:stop] += np.rint(weights / weights.sum(axis=1, keepdims=True) * UNIT).astype(np.int64)
