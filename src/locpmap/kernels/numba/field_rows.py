"""Rows of the climb with error fields (`climb_fields`): scores, first labels and random starts."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.reference.noise import BITS, LAZY_SITE, START, START_BITS

_INF = np.float32(np.inf)
_SHIFT = 1.5 * 2.0**52
_UNSEEN = (BITS + 1) * math.log(2)  # a label this much below the best, plus log L, never comes first


def row_scratch(n_labels, width, cell, dtype):
    """Allocate the arrays of a row: field, second best scores and best labels; undecided columns and their weights."""
    n = width + 2 * cell
    row = np.empty(n, np.int32), np.empty(n, dtype), np.empty(n, np.int32)
    return row, (np.empty(n, np.int32), np.empty((n_labels, n)), np.empty(n))


@inner
def site_noise(words, noise, place, width):
    """Fill ``words`` (4, S) with the random words of the stream LAZY_SITE at every site, for four samples."""
    k0, k1, image, sample = noise
    row, column, full_width, _ = place
    for r in range(words.shape[1] // width):
        number, begin = np.int64(row + r) * full_width + column, r * width
        for c in range(width):  # without a slice of `words`, so that the loop vectorises
            w0, w1, w2, w3 = site_words(k0, k1, LAZY_SITE, image, sample >> 2, number + c, 0)
            words[0, begin + c], words[1, begin + c], words[2, begin + c], words[3, begin + c] = w0, w1, w2, w3


def safe_gaps(n_labels, temperature):
    """Return, for each leading byte of the uniform, the lead from which the best label is always the first, (256,)."""
    if n_labels == 2:  # their noise has another uniform, of 32 bits
        return np.full(256, temperature * 33 * math.log(2), np.float32)
    above, others = np.arange(1, 256) / 256, max(1, n_labels - 1)
    gaps = np.append(np.log(others * above / (1 - above)) + 1e-3, _UNSEEN + math.log(n_labels))
    return (temperature * gaps).astype(np.float32)


@inner
def draw_row(drawn, scores, terms, noise, place, scratch, r):
    """Fill the first label of a row's sites, the largest score and its lead over the second."""
    first, peak, lead, words, gaps = drawn
    row, column, full_width, temperature = place
    _, second, label = scratch[0]
    columns, weights, totals = scratch[1]
    n_labels, width = scores.shape
    begin, stop = r * width, (r + 1) * width
    best, mine, found, ahead = peak[begin:stop], words[noise[3] & 3, begin:stop], first[begin:stop], lead[begin:stop]
    score_row(scores, best, terms, scratch[0], r)
    for c in range(width):
        found[c], ahead[c] = label[c], best[c] - second[c]
    if temperature == 0:
        return
    n = 0
    for c in range(width):
        columns[n] = c
        n += ahead[c] < gaps[mine[c] >> np.uint32(24)]
    number = np.int64(row + r) * full_width + column
    if n_labels == 2:
        for c in columns[:n]:
            found[c] = of_two(scores, c, noise, number + c, temperature)
        return
    weigh(weights, totals, scores, best, columns[:n], 1 / temperature)
    for j in range(n):
        c = columns[j]
        found[c] = invert(weights, j, label[c], uniform(mine[c]) * totals[j])


@inner
def score_row(scores, best, terms, scratch, r):
    """Fill the scores of a row (L, W), the best of them, and in ``scratch`` the best labels and second best scores."""
    by_label, offsets, nodes, shift, top, left, unit = terms
    field, second, label = scratch
    width = len(best)
    best[:], second[:], label[:] = -_INF, -_INF, 0
    for k in range(len(offsets)):
        if offsets[k] == -_INF:
            scores[k] = -_INF
        else:
            begin = spread(field, nodes[k], r, width, shift, top, left)
            values = field[begin : begin + width]
            follow(scores[k], best, second, label, by_label[r, k], values, offsets[k], unit, k)


@inner
def follow(mine, best, second, label, unaries, values, offset, unit, k):
    """Compute the scores of label k in a part of a row; update the best label, its score and the second best score."""
    k = np.int32(k)
    for c in range(len(unaries)):
        score = unaries[c] + (offset + np.float32(values[c]) * unit)
        mine[c] = score
        before = best[c]
        better = score > before
        lower = before if better else score
        second[c] = lower if lower > second[c] else second[c]
        label[c] = k if better else label[c]
        best[c] = score if better else before


@inner
def of_two(scores, c, noise, site, temperature):
    """Return the first of two labels at column c."""
    u = (np.float64(logistic_word(noise[0], noise[1], noise[2], noise[3], site)) + 0.5) * 2.0**-32
    return np.float64(scores[1, c]) - scores[0, c] > temperature * math.log(u / (1 - u))


@inner
def weigh(weights, totals, scores, best, columns, inverse):
    """Fill ``exp((score - best) · inverse)`` of every label in some columns, and the sums over labels."""
    totals[: len(columns)] = 0
    for k in range(len(scores)):
        mine, found = scores[k], weights[k]
        for j in range(len(columns)):
            c = columns[j]
            found[j] = (np.float64(mine[c]) - np.float64(best[c])) * inverse
        for j in range(len(columns)):
            value = exp(found[j])
            found[j] = value
            totals[j] += value


@inlined
def exp(x):
    """Return ``exp(x)`` for x <= 700, to 1e-14, and 1e-304 below -700; without calls, so that loops vectorise."""
    x = max(x, -700.0)
    shifted = x * 1.4426950408889634 + _SHIFT  # moves the integer part to the lowest bits
    n = shifted - _SHIFT
    x = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    high = ((x * (1 / 39916800) + 1 / 3628800) * x + 1 / 362880) * x + 1 / 40320
    high = ((high * x + 1 / 5040) * x + 1 / 720) * x + 1 / 120
    series = ((((high * x + 1 / 24) * x + 1 / 6) * x + 0.5) * x + 1.0) * x + 1.0
    return series * np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)


@inner
def invert(weights, j, best, u):
    """Invert the cumulative distribution at u, with the best label first and the others in natural order."""
    cumulative, last = 1.0, np.int64(best)
    for k in range(len(weights)):
        if u <= cumulative:
            break
        if k != best and weights[k, j] > 1e-300:
            cumulative += weights[k, j]
            last = np.int64(k)
    return last


@inner
def spread(field, nodes, r, width, shift, top, left):
    """Interpolate a label's nodes in row r, from a corner of the cells; return the position of the first column."""
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    begin = left & (cell - 1)
    if cell == 4:
        fill(field, nodes[y], nodes[y + 1], down, begin + width, np.int32(4))  # with an unrolled loop
    else:
        fill(field, nodes[y], nodes[y + 1], down, begin + width, cell)
    return begin


@inlined
def fill(field, upper, lower, down, count, cell):
    """Interpolate between two rows of nodes."""
    first = (cell - down) * upper[0] + down * lower[0]
    for x in range(-(-count // cell)):
        second = (cell - down) * upper[x + 1] + down * lower[x + 1]
        value, step = cell * first, second - first
        for j in range(cell):
            field[x * cell + j] = value + np.int32(j) * step
        first = second


@inner
def random_row(y, terms, noise, place, r, width):
    """Fill row r of ``y`` with a uniformly random allowed label per site."""
    by_label, offsets = terms[0][r], terms[1]
    k0, k1, image, sample = noise
    row, column, full_width, _ = place
    for c in range(width):
        site = np.int64(row + r) * full_width + column + c
        allowed = 0
        for k in range(len(offsets)):
            allowed += by_label[k, c] + offsets[k] > -np.inf
        if len(offsets) == 2:
            bits = pick(site_words(k0, k1, START_BITS, image, sample >> 7, site, 0), (sample >> 5) & 3)
            nth = np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1)) if allowed == 2 else 0
        else:
            word = np.uint64(pick(site_words(k0, k1, START, image, sample >> 2, site, 0), sample & 3))
            nth = np.int64((word * np.uint64(allowed)) >> np.uint64(32))
        label = -1 if allowed else 0  # a masked site has no allowed label where its only one does not occur
        while allowed and nth >= 0:
            label += 1
            nth -= by_label[label, c] + offsets[label] > -np.inf
        y[r * width + c] = label
