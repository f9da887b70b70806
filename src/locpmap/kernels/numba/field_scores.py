"""Perturbed scores of single labels in the climb with error fields (`climb_fields`), and bounds on them."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.field_rows import exp
from locpmap.kernels.numba.noise import joined, logistic_word, pick, site_words
from locpmap.kernels.reference.noise import LAZY_CLOCK

_LOG2 = math.log(2)
_LOGISTIC = 33 * _LOG2  # the largest logistic noise


def _bounds():
    """Return the minimum and maximum of ``log(-log u)`` for every leading byte of u, (256, 2), with a margin."""
    edge = np.log(-np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33)))
    return np.stack([edge[1:] - 1e-6, edge[:-1] + 1e-6], axis=1)


BOUNDS = _bounds()
_SPAN = float(BOUNDS.max() - BOUNDS.min())  # a wait and a clock differ by at most this, in logarithms


@inlined
def leader(who, extra, low, high, n, a, scores, c, lead, peak, word, noise, site, temperature):
    """Return the best of the first label a and n rivals, or -1 if bounds of their scores do not decide.

    In the terms of `reference.noise`, a rival's score minus that of the first label, divided by the temperature, is
    ``extra / temperature - log(1 + exp(wait - log p - clock))``, with the logarithms of the rival's wait and of the
    first label's clock.  The leading bytes of the noise bound it.
    """
    n_labels = len(scores)
    if n_labels == 2:
        high[:n] = np.inf
        ahead = extra[0] + (np.float64(scores[who[0], c]) - scores[a, c])
        clear = abs(ahead) > _LOGISTIC * temperature
        return (who[0] if ahead > 0 else np.int64(a)) if clear else -1
    inverse = 1 / temperature
    log_total = (n_labels - 1) * exp(-lead * inverse)  # an upper bound
    tick = word & np.uint32(255)
    best, floor = np.int64(a), 0.0
    for j in range(n):
        below, ahead = (np.float64(peak) - scores[who[j], c]) * inverse, extra[j] * inverse
        low[j], high[j] = -np.inf, -np.inf
        if ahead >= below - _SPAN:
            wait = wait_byte(who[j], n_labels, noise, site)
            # max(x, 0) <= log(1 + exp(x)) <= max(x, 0) + log 2
            low[j] = ahead - max(BOUNDS[wait, 1] - BOUNDS[tick, 0] + below + log_total, 0.0) - _LOG2
            high[j] = ahead - max(BOUNDS[wait, 0] - BOUNDS[tick, 1] + below, 0.0)
        if low[j] > floor:
            best, floor = who[j], low[j]
    for j in range(n):
        if who[j] != best:
            if high[j] >= floor:
                return -1
            high[j] = -np.inf
    return best


@inner
def best_label(who, extra, high, n, a, own, scores, c, peak, word, noise, site, temperature):
    """Return the best of the first label and the rivals that bounds do not exclude; own if it is one of several."""
    best, score = np.int64(a), perturbed(a, a, scores, c, peak, word, noise, site, temperature)
    for j in range(n):
        if high[j] > -np.inf:
            k, total = who[j], perturbed(who[j], a, scores, c, peak, word, noise, site, temperature) + extra[j]
            if total > score or (total == score and (k == own or (k < best and best != own))):
                best, score = k, total
    return best


@inner
def perturbed(k, a, scores, c, peak, word, noise, site, temperature):
    """Return the perturbed score of label k at a site with first label a, relative to the sum over labels."""
    n_labels, score = len(scores), np.float64(scores[k, c])
    if score == -np.inf or (n_labels == 2 and k == 0):
        return score
    if n_labels == 2:
        u = (np.float64(logistic_word(noise[0], noise[1], noise[2], noise[3], site)) + 0.5) * 2.0**-32
        return score - temperature * math.log(u / (1 - u))
    clock = math.log(-math.log(joined(word & np.uint32(255), 0, noise, site)))
    if k != a:
        total = 0.0
        for other in range(n_labels):
            total += exp((np.float64(scores[other, c]) - peak) / temperature)
        log_p = (score - peak) / temperature - math.log(total)
        wait = math.log(-math.log(joined(wait_byte(k, n_labels, noise, site), k + 1, noise, site))) - log_p
        clock = max(wait, clock) + math.log1p(math.exp(-abs(wait - clock)))
    return -temperature * clock


@inlined
def wait_byte(k, n_labels, noise, site):
    """Return the leading byte of the wait of label k, as in `reference.lazy_bytes`."""
    k0, k1, image, sample = noise
    bits = 2 if n_labels <= 4 else 3 if n_labels <= 8 else 4  # a sample has 2^bits bytes of a call
    byte = ((sample & ((16 >> bits) - 1)) << bits) + (k & ((1 << bits) - 1))
    word = pick(site_words(k0, k1, LAZY_CLOCK, image, sample >> (4 - bits), site, k >> bits), byte >> 2)
    return word >> np.uint32(8 * (byte & 3)) & np.uint32(255)
