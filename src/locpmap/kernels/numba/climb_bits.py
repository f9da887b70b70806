"""LocPMAP's climb with two labels and one Potts weight on a 4-connected grid: 64 samples in a machine word.

With n of its d neighbours at label 1, a site takes label 1 iff its uniform u is below ``sigmoid(h + w (2n - d))``, h
being the difference of its unaries.  So a site needs, once per sample, d + 1 comparisons of u with numbers that all
samples share.  The leading 16 bits of u decide nearly all of them, for several samples in one instruction; kept as
d + 1 bit masks, they turn a visit for 64 samples into some twenty word operations on the neighbours' labels.
Scratch: six words per site.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.bits import bit_mask, trailing_zeros
from locpmap.kernels.numba.noise import logistic_word, pick, site_words
from locpmap.kernels.perturbation import PERTURBED, RANDOM
from locpmap.kernels.reference import noise as streams

_LOGISTIC, _START_BITS = streams.LOGISTIC, streams.START_BITS
_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
AT_ONCE = 16  # sites whose masks are made together, stage by stage: each stage is a loop that keeps the processor busy
TAME = 300.0  # log-odds whose exponentials can be multiplied without overflow


@njit(nogil=True, cache=True, error_model="numpy")
def climb_bits(
    unary,
    weight,
    temperature,
    k0,
    k1,
    first_image,
    first_sample,
    n_samples,
    start,
    given,
    height,
    width,
    row,
    column,
    full_width,
    max_sweeps,
    words,
):
    """Fill ``words`` (n, S): bit s of a word is the label in sample first_sample + s (a multiple of 8; s < 64).

    Returns the last sweep that changed anything, (n, n_samples).
    """
    n_images = unary.shape[0]
    sweeps = np.zeros((n_images, n_samples), np.int32)
    lanes = _ALL >> np.uint64(64 - n_samples)
    stride = width + 2
    y = np.empty((height + 2) * stride, np.uint64)  # framed by zeros: a missing neighbour never counts
    takes_one = np.empty((height * width, 5), np.uint64)  # with n neighbours at label 1: the samples that take label 1
    alone = np.empty(AT_ONCE, np.uint64)  # the samples that take label 1 where neighbours have no say
    field = (2.0 * np.arange(5) - np.arange(5.0)[:, None]) * (weight / temperature)  # [degree, neighbours at label 1]
    decay = np.exp(-field)
    limits, draws = np.empty(6 * AT_ONCE, np.uint64), np.empty(32 * AT_ONCE, np.uint32)
    flags = np.zeros(64 * AT_ONCE, np.uint8)
    halves, eights = draws.view(np.uint16), flags.view(np.uint64)
    moved = np.empty((2, height + 2), np.bool_)  # per colour and row, in its last visit
    for n in range(n_images):
        y[:] = _ZERO
        for r in range(height):
            for begin in range(0, width, AT_ONCE):
                count = min(AT_ONCE, width - begin)
                first, site0 = r * width + begin, np.int64(row + r) * full_width + column + begin
                noise = (k0, k1, first_image + n, first_sample)
                for j in range(count):
                    c = begin + j
                    degree = (r > 0) + (r < height - 1) + (c > 0) + (c < width - 1)
                    h = (np.float64(unary[n, first + j, 1]) - unary[n, first + j, 0]) / temperature
                    thresholds(limits, 6 * j, h, field, decay, degree)
                draw(draws, noise, site0, count, n_samples)
                compare(flags, halves, limits, count)
                for j in range(count):
                    look_closer(flags, eights, limits, noise, site0, j, lanes)
                    for b in range(5):
                        takes_one[first + j, b] = bit_mask(eights, 8 * j, n_samples, b) & lanes
                    alone[j] = bit_mask(eights, 8 * j, n_samples, 5) if start == PERTURBED else _ZERO
                for j in range(count):
                    i = first + j
                    if unary[n, i, 0] == -np.inf or unary[n, i, 1] == -np.inf:
                        label = _ALL if unary[n, i, 0] == -np.inf else _ZERO
                    elif start == RANDOM:
                        label = start_word(noise, site0 + j)
                    elif start == PERTURBED:
                        label = alone[j]
                    else:
                        label = _ALL if given[n, i] else _ZERO
                    y[(r + 1) * stride + begin + j + 1] = label & lanes
        moved[:] = False
        for sweep in range(1, max_sweeps + 1):
            changed = _ZERO
            for colour in range(2):
                changed |= half_sweep(y, takes_one, moved, colour, sweep == 1, height, width, row + column)
            if changed == _ZERO:
                break
            for s in range(n_samples):
                if changed >> np.uint64(s) & _ONE:
                    sweeps[n, s] = sweep
        for r in range(height):
            for c in range(width):
                words[n, r * width + c] = y[(r + 1) * stride + c + 1]
    return sweeps


@njit(error_model="numpy")
def threshold(odds):
    """The whole number t such that x < t exactly where the uniform (x + 1/2) / 2^32 is below 1 / (1 + odds)."""
    return np.uint64(math.ceil(2.0**32 / (1.0 + odds) - 0.5))


@njit(error_model="numpy")
def thresholds(limits, at, h, field, decay, d):
    """Below which numbers a sample takes label 1: with 0 .. 4 of d neighbours at 1, and without any neighbours."""
    odds = math.exp(-h)
    tame = abs(h) < TAME and abs(field[d, 0]) + abs(field[d, 4]) < TAME  # otherwise the product may be 0 · inf
    for n in range(5):
        limits[at + n] = threshold(odds * decay[d, n] if tame else math.exp(-h - field[d, n]))
    limits[at + 5] = threshold(odds)


@njit(error_model="numpy")
def draw(draws, noise, site0, count, n_samples):
    """The leading halves of the uniforms of ``count`` sites, 64 to a site, two to a word."""
    k0, k1, image, first_sample = noise
    for j in range(count):
        for eight in range((n_samples + 7) >> 3):
            four = site_words(k0, k1, _LOGISTIC, image, (first_sample >> 3) + eight, site0 + j, 0)
            at = 32 * j + 4 * eight
            draws[at], draws[at + 1], draws[at + 2], draws[at + 3] = four


@njit(error_model="numpy")
def compare(flags, halves, limits, count):
    """A byte per site and sample: bit n where the leading half is below that of limit n, bit 6 where it equals one."""
    for j in range(count):
        # 2^32 has no leading half; capped, it only calls for a closer look.
        c0, c1 = leading(limits[6 * j]), leading(limits[6 * j + 1])
        c2, c3 = leading(limits[6 * j + 2]), leading(limits[6 * j + 3])
        c4, c5 = leading(limits[6 * j + 4]), leading(limits[6 * j + 5])
        for s in range(64):
            x = halves[64 * j + s]
            code = np.uint16(x < c0) | np.uint16(np.uint16(x < c1) << 1) | np.uint16(np.uint16(x < c2) << 2)
            code |= np.uint16(np.uint16(x < c3) << 3) | np.uint16(np.uint16(x < c4) << 4)
            close = (x == c0) | (x == c1) | (x == c2) | (x == c3) | (x == c4) | (x == c5)
            code |= np.uint16(np.uint16(x < c5) << 5) | np.uint16(np.uint16(close) << 6)
            flags[64 * j + s] = np.uint8(code)


@njit(forceinline=True, error_model="numpy")
def leading(limit):
    """The leading 16 of 32 bits."""
    return np.uint16(min(limit >> np.uint64(16), np.uint64(0xFFFF)))


@njit(error_model="numpy")
def look_closer(flags, eights, limits, noise, site0, j, lanes):
    """Decide by all 32 bits where the leading half equals that of a limit."""
    k0, k1, image, first_sample = noise
    unclear = bit_mask(eights, 8 * j, 64, 6) & lanes
    while unclear:
        s = np.int64(trailing_zeros(unclear))
        unclear &= unclear - _ONE
        x = logistic_word(k0, k1, image, first_sample + s, site0 + j)
        code = 0
        for n in range(6):
            code |= (x < limits[6 * j + n]) << n
        flags[64 * j + s] = code


@njit(error_model="numpy")
def start_word(noise, site):
    """The start bits of samples first_sample .. first_sample + 63 of one site."""
    k0, k1, image, first_sample = noise
    result = _ZERO
    four = site_words(k0, k1, _START_BITS, image, first_sample >> 7, site, 0)
    for part in range(3):  # 64 bits at any offset lie in at most three words of 32
        j = (first_sample >> 5) + part
        if part > 0 and j & 3 == 0:
            four = site_words(k0, k1, _START_BITS, image, j >> 2, site, 0)
        bits = np.uint64(pick(four, j & 3))
        offset = 32 * part - (first_sample & 31)
        if offset < 0:
            result |= bits >> np.uint64(-offset)
        elif offset < 64:
            result |= bits << np.uint64(offset)
    return result


@njit(error_model="numpy")
def half_sweep(y, takes_one, moved, colour, everywhere, height, width, parity):
    """Visit one colour, row by row where the other colour moved nearby; returns the samples that changed."""
    stride = width + 2
    changed = _ZERO
    for r in range(height):
        now = _ZERO
        if everywhere or moved[1 - colour, r] or moved[1 - colour, r + 1] or moved[1 - colour, r + 2]:
            for c in range((parity + r + colour) & 1, width, 2):
                x = (r + 1) * stride + c + 1
                left, right, up, down = y[x - 1], y[x + 1], y[x - stride], y[x + stride]
                sides, verticals = left & right, up & down
                side, vertical = left | right, up | down
                least1 = side | vertical
                least2 = sides | verticals | (side & vertical)
                least3 = (sides & vertical) | (verticals & side)
                all4 = sides & verticals
                i = r * width + c
                new = (
                    (takes_one[i, 0] & ~least1)
                    | (takes_one[i, 1] & least1 & ~least2)
                    | (takes_one[i, 2] & least2 & ~least3)
                    | (takes_one[i, 3] & least3 & ~all4)
                    | (takes_one[i, 4] & all4)
                )
                now |= new ^ y[x]
                y[x] = new
        moved[colour, r + 1] = now != _ZERO
        changed |= now
    return changed
