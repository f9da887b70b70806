"""Numba version of `reference.noise`: the same integers, one site per call.

The functions are inlined into the calling kernels.  Numba does not track the files of inlined functions: delete its
cache of compiled kernels after changes to this file.
"""

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.reference.noise import BITS, LAZY_FINE, LOGISTIC, LOGISTIC_FINE

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@inlined
def philox(c0, c1, c2, c3, k0, k1):
    """Return four 32-bit words: ten rounds of Philox-4x32 on one counter."""
    # The upper halves of these 64-bit variables are 0, so every product compiles to one 32x32 -> 64 multiplication.
    c0, c1 = np.uint64(np.uint32(c0)), np.uint64(np.uint32(c1))
    c2, c3 = np.uint64(np.uint32(c2)), np.uint64(np.uint32(c3))
    k0, k1 = np.uint64(np.uint32(k0)), np.uint64(np.uint32(k1))
    for _ in range(10):
        product0, product1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (product1 >> _32) ^ c1 ^ k0, product1 & _LOW, (product0 >> _32) ^ c3 ^ k1, product0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)


@inlined
def site_words(k0, k1, stream, image, sample, site, group):
    """Return the four words of (stream, image, sample, site, group), packed as in `reference.noise`."""
    site = np.uint64(site)
    c1 = (site >> _32) + np.uint64(np.int64(group) << 16)
    return philox(site, c1, sample, np.int64(image) + (np.int64(stream) << 28), k0, k1)


@inlined
def pick(words, j):
    """Return word j of four."""
    low, high = (words[1], words[3]) if j & 1 else (words[0], words[2])
    return high if j & 2 else low


@inlined
def uniform(word):
    """Convert a 32-bit word to a float64 strictly inside (0, 1), which is exact in float32 too."""
    return (np.float64(np.uint32(word) >> np.uint32(32 - BITS)) + 0.5) * 2.0**-BITS


@inlined
def joined(coarse, m, noise, site):
    """Return the uniform of a leading byte and the 24 bits of fine noise number m."""
    k0, k1, image, sample = noise
    fine = pick(site_words(k0, k1, LAZY_FINE, image, sample, site, m >> 2), m & 3)
    return (np.float64(coarse) * 2.0**24 + np.float64(fine >> np.uint32(8)) + 0.5) * 2.0**-32


@inner
def logistic_word(k0, k1, image, sample, site):
    """Return the 32 bits x of a logistic variate's uniform ``(x + 1/2) / 2^32``."""
    j, shift = sample >> 1 & 3, np.uint32(16 * (sample & 1))
    coarse = pick(site_words(k0, k1, LOGISTIC, image, sample >> 3, site, 0), j) >> shift & np.uint32(0xFFFF)
    fine = pick(site_words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site, 0), j) >> shift & np.uint32(0xFFFF)
    return np.uint64(coarse) << np.uint64(16) | np.uint64(fine)


@inner
def first_above(weights, threshold):
    """Return the first label whose cumulative weight exceeds a threshold below the total of the weights."""
    below = 0.0
    for k in range(len(weights)):
        below += weights[k]  # in the order of the total, so the threshold is reached
        if threshold < below:
            return k
    return len(weights) - 1
