"""Counts of the labels of samples packed into words: two labels, one bit per sample."""

import numpy as np

from locpmap.arrays import Array


def bit_votes(words: Array, n_samples: int, totals: Array, begin: int, stop: int) -> None:
    """Add the numbers of samples with label 0 and 1 to ``totals`` (n, S, 2) for sites begin..stop; words (n, S)."""
    ones = np.bitwise_count(words[:, begin:stop])
    totals[:, begin:stop, 0] += n_samples - ones.astype(totals.dtype)
    totals[:, begin:stop, 1] += ones
