"""Counting the labels of samples that are packed into words, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _EACH = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@njit(nogil=True, cache=True, error_model="numpy")
def bit_votes(words, n_samples, totals, begin, stop):
    """Add the samples with label 0 and with label 1 to ``totals`` (n, S, 2) for sites begin..stop; words (n, S)."""
    for n in range(words.shape[0]):
        for i in range(begin, stop):
            x = words[n, i]  # count the bits in pairs, in fours, in bytes, then add the bytes
            x = x - (x >> _1 & _PAIRS)
            x = (x & _NIBBLES) + (x >> _2 & _NIBBLES)
            ones = np.int64(((x + (x >> _4)) & _BYTES) * _EACH >> _56)
            totals[n, i, 0] += n_samples - ones
            totals[n, i, 1] += ones
