"""Conditional probabilities (see `conditionals`) on a volume with Potts weights, without lists of neighbours."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import unit_of
from locpmap.kernels.perturbation import VolumeLinks
from locpmap.kernels.reference.climb_volume import weights_between


def volume_conditionals(
    unary: Array, links: VolumeLinks, labels: Array, sums: Array, first: int, lo: int, begin: int, stop: int
) -> None:
    """Add ``p(· | other labels)`` at sites begin..stop of images lo.. to sums (n, T, L) of the sites from ``first`` on.

    Labels (n, S, R) may end behind the last neighbour of these sites.
    """
    one_hot, unit = np.eye(unary.shape[2]), unit_of(sums.dtype)
    for n in range(len(labels)):
        weights = weights_between(links, lo + n)[begin:stop, : labels.shape[1]]
        for s in range(labels.shape[2]):
            y = labels[n, :, s].astype(np.int64)
            scores = unary[lo + n, begin:stop] + weights @ one_hot[y]
            # If error fields remove the only label of a masked site, the sample's label gets probability 1.
            stuck = np.flatnonzero(scores.max(axis=1) == -np.inf)
            scores[stuck, y[begin:stop][stuck]] = 0
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            sums[n, begin - first : stop - first] += np.rint(odds / odds.sum(axis=1, keepdims=True) * unit).astype(
                sums.dtype
            )
