"""Numba version of `reference.bit_votes`: counts of the labels of samples packed into words."""

import numpy as np

from locpmap.kernels.numba.bits import count_bits
from locpmap.kernels.numba.compiling import kernel


@kernel
def bit_votes(words, n_samples, totals, begin, stop):
    """Add the numbers of samples with label 0 and 1 to ``totals`` (n, S, 2) for sites begin..stop; words (n, S)."""
    for n in range(words.shape[0]):
        for i in range(begin, stop):
            ones = np.int64(count_bits(words[n, i]))
            totals[n, i, 0] += n_samples - ones
            totals[n, i, 1] += ones
