"""The contest of labels at a voxel: bounds on the perturbed scores, and the scores where the bounds do not decide.

Few labels are compared in all lanes at once, in single precision with a margin for rounding (`judge`); `contest`
decides the lanes that remain, and compares many labels.  Both bound the noise by its leading bytes.

In the terms of `reference.noise`, a rival's score minus that of the first label, divided by the temperature, is
``extra / temperature - log(1 + exp(wait - log p - clock))``, with the logarithms of the rival's wait and of the first
label's clock.  Only labels of neighbours with more support than the first label can win.
"""

import numpy as np

from locpmap.kernels.numba.bits import trailing_zeros
from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.field_scores import BOUNDS, best_label
from locpmap.kernels.numba.noise import pick, site_words
from locpmap.kernels.numba.vectors import (
    as_bits,
    floats,
    gather,
    ints,
    load_floats,
    load_ints,
    rounded,
    select,
    store,
    times_power_of_two,
)
from locpmap.kernels.numba.volume_sites import LANES
from locpmap.kernels.reference.noise import LAZY_CLOCK

_SPAN = float(BOUNDS.max() - BOUNDS.min())
_END, _CELLS = 24.0, 16  # the table of log(1 + exp x) covers -24 to 24, with 16 entries per unit
_SOFTPLUS = np.logaddexp(0.0, np.arange(-_END, _END + 1 / _CELLS, 1 / _CELLS))
_MARGIN = 1e-6
_UP = 1 + 5e-5  # a margin for rounding in single precision
LARGEST = 1e37  # sites whose weights sum to more are visited in double precision


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


@inlined
def exponential(x):
    """Return exp(x) for -60 <= x <= 60, with relative error 2e-7."""
    n = rounded(x * floats(1.44269504))
    x = x - n * floats(0.693359375) + n * floats(2.12194440e-4)
    series = floats(1.9875691500e-4) * x + floats(1.3981999507e-3)
    series = (series * x + floats(8.3334519073e-3)) * x + floats(4.1665795894e-2)
    series = (series * x + floats(1.6666665459e-1)) * x + floats(5.0000001201e-1)
    return times_power_of_two(series * x * x + x + floats(1.0), n)


@inner
def wait_words(words, draw, site, lanes, n_labels):
    """Fill the words with the leading bytes of the waits of up to 8 labels, in some lanes (bits)."""
    k0, k1, image, sample0 = draw
    shared = 2 if n_labels <= 4 else 1  # a call has the bytes of 2^shared samples
    last, rest = np.int64(-1), np.uint64(lanes)
    while rest:
        lane = np.int64(trailing_zeros(rest))
        rest &= rest - np.uint64(1)
        sample = sample0 + lane
        if sample >> shared != last:
            last = sample >> shared
            call = site_words(k0, k1, LAZY_CLOCK, image, last, site, 0)
        if n_labels <= 4:
            words[lane] = pick(call, sample & 3)
        else:
            words[lane], words[LANES + lane] = pick(call, 2 * (sample & 1)), pick(call, 2 * (sample & 1) + 1)


@inlined
def judge(first, held, rivals, support, low, words, bounds, tick, inverse_p, inverse):
    """Return the labels that win for any value of the noise's remaining bits, and as bits the lanes that have one.

    Clocks are in units of that of the first label.  ``support`` (L, 8) and ``held`` are the sums of the weights of the
    neighbours with each label and with the first label; labels without a bit in ``rivals`` lose to it in every lane.
    """
    one, bar = floats(1.0), floats(1.0)
    slowest, quickest = gather(bounds, tick + ints(512)), gather(bounds, tick + ints(768))
    for k in range(len(inverse_p)):
        if not rivals >> k & 1:
            continue
        byte = load_ints(words, LANES * (k >> 2)) >> ints(8 * (k & 3)) & ints(255)
        pull = exponential((held - load_floats(support, LANES * k)) * floats(inverse))
        slower = floats(inverse_p[k])
        least = (one + gather(bounds, byte) * slowest * slower) * pull
        most = (one + gather(bounds, byte + ints(256)) * quickest * slower) * pull
        store(low, LANES * k, select(first == ints(k), floats(np.inf), least))
        bar = select((most < bar), most, bar)
    label = first
    bar = bar * floats(_UP)
    found = select(one < bar, ints(1), ints(0))
    for k in range(len(inverse_p)):
        if rivals >> k & 1:
            hit = load_floats(low, LANES * k) < bar
            label = select(hit, ints(k), label)
            found += select(hit, ints(1), ints(0))
    return label, as_bits(found == ints(1))
