"""The contest of labels at a voxel: bounds on the perturbed scores, and the scores where the bounds do not decide.

In the terms of `reference.noise`, a rival's score minus that of the first label, divided by the temperature, is
``extra / temperature - log(1 + exp(wait - log p - clock))``, with the logarithms of the rival's wait and of the first
label's clock.  Only labels of neighbours with more support than the first label can win.
"""

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.field_scores import BOUNDS, best_label
from locpmap.kernels.numba.noise import site_words
from locpmap.kernels.reference.noise import LAZY_CLOCK

_SPAN = float(BOUNDS.max() - BOUNDS.min())
_END, _CELLS = 24.0, 16  # the table of log(1 + exp x) covers -24 to 24, with 16 entries per unit
_SOFTPLUS = np.logaddexp(0.0, np.arange(-_END, _END + 1 / _CELLS, 1 / _CELLS))
_MARGIN = 1e-9


@inlined
def softplus_below(x):
    """Return a lower bound of ``log(1 + exp x)``."""
    if x >= _END:
        return x
    return 0.0 if x < -_END else _SOFTPLUS[np.int64((x + _END) * _CELLS)] - _MARGIN


@inlined
def softplus_above(x):
    """Return an upper bound of ``log(1 + exp x)``."""
    if x >= _END:
        return x + _MARGIN
    return _MARGIN if x < -_END else _SOFTPLUS[np.int64((x + _END) * _CELLS) + 1] + _MARGIN


@inner
def contest(rivals, n, a, own, scores, i, peak, log_total, tick, noise, site, temperature, call):
    """Return the best of the first label a and n rivals at site i; ``call`` caches a call of Philox."""
    who, extra, low, high = rivals
    k0, k1, image, sample = noise
    n_labels = len(scores)
    inverse = 1 / temperature
    bits = 2 if n_labels <= 4 else 3 if n_labels <= 8 else 4  # a sample has 2^bits bytes of a call
    best, floor = np.int64(a), 0.0
    for j in range(n):
        k = who[j]
        below, ahead = (np.float64(peak) - scores[k, i]) * inverse + log_total, extra[j] * inverse
        low[j], high[j] = -np.inf, -np.inf
        if ahead >= below - _SPAN:
            which = np.int64(sample >> (4 - bits)) << 16 | k >> bits
            if call[4] != which:
                words = site_words(k0, k1, LAZY_CLOCK, image, sample >> (4 - bits), site, k >> bits)
                call[0], call[1], call[2], call[3], call[4] = words[0], words[1], words[2], words[3], which
            byte = ((sample & ((16 >> bits) - 1)) << bits) + (k & ((1 << bits) - 1))
            wait = call[byte >> 2] >> (8 * (byte & 3)) & 255
            low[j] = ahead - softplus_above(BOUNDS[wait, 1] - BOUNDS[tick, 0] + below)
            high[j] = ahead - softplus_below(BOUNDS[wait, 0] - BOUNDS[tick, 1] + below)
        if low[j] > floor:
            best, floor = k, low[j]
    for j in range(n):
        if who[j] != best:
            if high[j] >= floor:
                return best_label(
                    who, extra, high, n, a, own, scores, i, peak, np.uint32(tick), noise, site, temperature
                )
            high[j] = -np.inf
    return best
