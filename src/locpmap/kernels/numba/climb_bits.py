"""LocPMAP's climb with two labels and one Potts weight on a 4-connected grid: 64 samples in a machine word.

With n of its d neighbours at label 1, a site takes label 1 iff its uniform u is below ``sigmoid(h + w (2n - d))``, h
being the difference of its unaries.  So a site needs, once per sample, d + 1 comparisons of one random word with whole
numbers that all samples share; kept as d + 1 bit masks, they turn a visit for 64 samples into some twenty word
operations on the neighbours' labels.  Scratch: six words per site.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.noise import pick, site_words
from locpmap.kernels.perturbation import PERTURBED, RANDOM
from locpmap.kernels.reference import noise as streams

_LOGISTIC, _START_BITS = streams.LOGISTIC, streams.START_BITS
_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
_BITS = streams.BITS
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
    """Fill ``words`` (n, S): bit s of a word is the label in sample first_sample + s (a multiple of 4; s < 64).

    Returns the last sweep that changed anything, (n, n_samples).
    """
    n_images = unary.shape[0]
    sweeps = np.zeros((n_images, n_samples), np.int32)
    lanes = _ALL >> np.uint64(64 - n_samples)
    stride = width + 2
    y = np.empty((height + 2) * stride, np.uint64)  # framed by zeros: a missing neighbour never counts
    takes_one = np.empty((height * width, 5), np.uint64)  # with n neighbours at label 1: the samples that take label 1
    alone = np.empty((1, 5), np.uint64)
    field = (2.0 * np.arange(5) - np.arange(5.0)[:, None]) * (weight / temperature)  # [degree, neighbours at label 1]
    decay = np.exp(-field)
    moved = np.empty((2, height + 2), np.bool_)  # per colour and row, in its last visit
    for n in range(n_images):
        y[:] = _ZERO
        for r in range(height):
            for c in range(width):
                i = r * width + c
                site = np.int64(row + r) * full_width + column + c
                zero, one = np.float64(unary[n, i, 0]), np.float64(unary[n, i, 1])
                degree = (r > 0) + (r < height - 1) + (c > 0) + (c < width - 1)
                noise = (k0, k1, first_image + n, first_sample, site)
                h = (one - zero) / temperature
                fill_masks(takes_one, i, h, field, decay, degree, n_samples, noise)
                if zero == -np.inf or one == -np.inf:
                    label = _ALL if zero == -np.inf else _ZERO
                elif start == RANDOM:
                    label = start_word(noise)
                elif start == PERTURBED and degree % 2 == 0:  # as many neighbours at 0 as at 1: the unaries decide
                    label = takes_one[i, degree // 2]
                elif start == PERTURBED:
                    fill_masks(alone, 0, h, field, decay, 0, n_samples, noise)
                    label = alone[0, 0]
                else:
                    label = _ALL if given[n, i] else _ZERO
                y[(r + 1) * stride + c + 1] = label & lanes
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
    """The whole number t such that a random word is below t exactly where its uniform is below 1 / (1 + odds)."""
    return np.uint64(math.ceil(2.0**_BITS / (1.0 + odds) - 0.5)) << np.uint64(32 - _BITS)


@njit(error_model="numpy")
def fill_masks(masks, i, h, field, decay, d, n_samples, noise):
    """Row i of the masks: the samples that take label 1 with 0 .. 4 of d neighbours there."""
    k0, k1, image, first_sample, site = noise
    odds = math.exp(-h)
    o0, o1, o2 = odds * decay[d, 0], odds * decay[d, 1], odds * decay[d, 2]
    o3, o4 = odds * decay[d, 3], odds * decay[d, 4]
    if not (abs(h) < TAME and abs(field[d, 0]) + abs(field[d, 4]) < TAME):  # the products may be 0 · inf
        o0, o1, o2 = math.exp(-h - field[d, 0]), math.exp(-h - field[d, 1]), math.exp(-h - field[d, 2])
        o3, o4 = math.exp(-h - field[d, 3]), math.exp(-h - field[d, 4])
    t0, t1, t2, t3, t4 = threshold(o0), threshold(o1), threshold(o2), threshold(o3), threshold(o4)
    m0, m1, m2, m3, m4 = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
    for block in range((n_samples - 1) // 4, -1, -1):
        four = site_words(k0, k1, _LOGISTIC, image, first_sample // 4 + block, site, 0)
        for j in range(3, -1, -1):  # backwards, so that the first sample ends up in the lowest bit
            x = np.uint64(pick(four, j))
            m0 = m0 << _ONE | np.uint64(x < t0)
            m1 = m1 << _ONE | np.uint64(x < t1)
            m2 = m2 << _ONE | np.uint64(x < t2)
            m3 = m3 << _ONE | np.uint64(x < t3)
            m4 = m4 << _ONE | np.uint64(x < t4)
    lanes = _ALL >> np.uint64(64 - n_samples)
    masks[i, 0], masks[i, 1], masks[i, 2] = m0 & lanes, m1 & lanes, m2 & lanes
    masks[i, 3], masks[i, 4] = m3 & lanes, m4 & lanes


@njit(error_model="numpy")
def start_word(noise):
    """The start bits of samples first_sample .. first_sample + 63 of one site."""
    k0, k1, image, first_sample, site = noise
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
