"""Description of rows of the Potts climb (`potts_layout.Sites`): probabilities, pulls, first and start labels."""

import math

import numpy as np

from locpmap.kernels.numba.bits import bit_mask, trailing_zeros
from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.noise import site_words, uniform
from locpmap.kernels.numba.potts_layout import UNKNOWN
from locpmap.kernels.perturbation import GIVEN, PERTURBED
from locpmap.kernels.reference.noise import BITS, LAZY_SITE, START

_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
_1, _INF, _NAN = np.float32(1), np.float32(np.inf), np.float32(np.nan)
_32 = np.uint64(32)
STRONG = 60.0  # sites whose weights sum to more are decided in double precision


@inlined
def exponential(x):
    """Return exp(max(x, -700)) for x <= 0, with relative error 1e-11 and without branches, so that loops vectorise."""
    x = max(x, -700.0)
    n = math.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 0.693145751953125 - n * 1.42860682030941723212e-6
    series = 1 / 362880
    for factorial in (40320, 5040, 720, 120, 24, 6, 2, 1, 1):
        series = series * r + 1 / factorial
    return series * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


@inner
def describe_row(field, draw, sites, scratch, dirty, r, slot0, site0, c0, both):
    """Describe the marked sites of row r: every second one from column c0, or all of them if ``both``."""
    unary, right, down, inverse_temperature = field
    first, tick, best, inverse_p, pull, safe = sites
    weights, tail, words = scratch.weights, scratch.tail, scratch.words
    flags, flags8 = scratch.flags, scratch.flags.view(np.uint64)
    word = words.reshape(-1)
    n_labels, n_lanes = unary.shape[1], first.shape[1]
    height, width = down.shape[0] + 1, right.shape[1] + 1
    for c in range(0 if both else c0, width, 1 if both else 2):
        i, slot = r * width + c, slot0 + c
        if dirty[i] == _ZERO or best[slot] != UNKNOWN:
            continue

        # Probabilities relative to the most probable label b; `tail` accumulates the others in natural order.
        b, top = 0, unary[i, 0]
        for k in range(1, n_labels):
            if unary[i, k] > top:
                b, top = k, unary[i, k]
        best[slot] = b
        for k in range(n_labels):
            tail[k] = exponential((np.float64(unary[i, k]) - top) * inverse_temperature)
        tail[b] = 0.0
        for k in range(n_labels):
            inverse_p[slot, k] = _1 / np.float32(tail[k])
        inverse_p[slot, b] = _1
        total = 0.0
        for k in range(n_labels):
            total += tail[k]
            tail[k] = total
        total += 1.0
        for k in range(n_labels):
            inverse_p[slot, k] *= np.float32(total)

        # The pull of each set of neighbours, and which sets outweigh their complement.
        weights[0] = right[r, c - 1] * inverse_temperature if c > 0 else 0.0
        weights[1] = right[r, c] * inverse_temperature if c < width - 1 else 0.0
        weights[2] = down[r - 1, c] * inverse_temperature if r > 0 else 0.0
        weights[3] = down[r, c] * inverse_temperature if r < height - 1 else 0.0
        pull[slot, 0] = _1 if weights[0] + weights[1] + weights[2] + weights[3] <= STRONG else _NAN
        for j in range(len(weights)):
            weights[j] = exponential(-weights[j])
        for j in range(4):
            for s in range(1 << j):
                pull[slot, (1 << j) + s] = pull[slot, s] * np.float32(weights[j])
        pull[slot, 16] = _INF
        held = np.uint16(0)
        for s in range(16):
            held |= np.uint16(pull[slot, s] <= pull[slot, 15 - s]) << np.uint16(s)
        safe[slot] = held

        # The first label of every lane: the most probable, unless the uniform exceeds its probability.
        for j in range((n_lanes + 3) >> 2):
            call = (draw.first_sample >> 2) + j
            four = site_words(draw.k0, draw.k1, LAZY_SITE, draw.image, call, site0 + c, 0)
            words[j, 0], words[j, 1], words[j, 2], words[j, 3] = four
        limit = np.uint32(math.floor(2.0**BITS / total + 0.5))
        for lane in range(n_lanes):
            flags[lane] = word[lane] >> np.uint32(32 - BITS) >= limit
        for lane in range(n_lanes):
            tick[slot, lane] = word[lane]
        for lane in range(n_lanes):
            first[slot, lane] = b
        others = bit_mask(flags8, 0, n_lanes, 0) & (_ALL >> np.uint64(64 - n_lanes))
        while others:
            lane = trailing_zeros(others)
            others &= others - _ONE
            t = uniform(word[lane]) * total - 1.0
            k = 0
            for j in range(n_labels - 1):
                k += t > tail[j]
            first[slot, lane] = k


@inner
def start_row(field, draw, sites, scratch, y, start, given, n, r, slot0, site0, skipped):
    """Write the start labels of row r; random ones are not drawn at columns of parity ``skipped`` (2: none)."""
    unary = field.unary
    n_labels, n_lanes, width = unary.shape[1], y.shape[1], field.right.shape[1] + 1
    words, word = scratch.words, scratch.words.reshape(-1)
    for c in range(width):
        i = r * width + c
        if start == PERTURBED:
            for lane in range(n_lanes):
                y[i, lane] = sites.first[slot0 + c, lane]
        elif start == GIVEN or c & 1 == skipped:
            for lane in range(n_lanes):
                y[i, lane] = given[n, i] if start == GIVEN else 0
        else:
            for j in range((n_lanes + 3) >> 2):
                four = site_words(draw.k0, draw.k1, START, draw.image, (draw.first_sample >> 2) + j, site0 + c, 0)
                words[j, 0], words[j, 1], words[j, 2], words[j, 3] = four
            allowed = 0
            for k in range(n_labels):
                allowed += unary[i, k] > -np.inf
            for lane in range(n_lanes):
                y[i, lane] = (np.uint64(word[lane]) * np.uint64(allowed)) >> _32
            if allowed < n_labels:
                for lane in range(n_lanes):
                    k, left = -1, np.int64(y[i, lane])
                    while left >= 0:
                        k += 1
                        left -= unary[i, k] > -np.inf
                    y[i, lane] = k
