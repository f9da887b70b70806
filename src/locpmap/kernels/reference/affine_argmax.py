"""Labels with the largest affine function of their probability, and sums over the sites of each label."""

import numpy as np

from locpmap.arrays import Array


def affine_argmax(probability: Array, slope: Array, offset: Array, labels: Array, counts: Array, inside: Array) -> None:
    """Fill ``labels`` (S,) with argmax_k slope[k] · probability[i, k] + offset[k], the first of equal ones.

    Also fill ``counts`` (L,) with the number of sites of each label, and ``inside`` (L,) with the sum of the label's
    probability over these sites.  An offset of -inf excludes a label.
    """
    labels[:] = (slope * probability + offset).argmax(1)
    own = probability[np.arange(len(labels)), labels]
    counts[:] = np.bincount(labels, minlength=len(counts))
    inside[:] = np.bincount(labels, own, len(counts))
