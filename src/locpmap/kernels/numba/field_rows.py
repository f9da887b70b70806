"""Rows of the climb with error fields (`climb_fields`): scores, first labels and random starts."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.reference.noise import BITS, LAZY_SITE, START, START_BITS

_INF, _1 = np.float32(np.inf), np.float32(1)
AT_ONCE = 128  # columns processed together
_UNSEEN = (BITS + 1) * math.log(2)  # a label this much below the best, plus log L, never comes first


@njit(error_model="numpy")
def row_scratch(n_labels, cell, dtype):
    """Allocate the arrays of a part of a row: field, scores, second best scores, best labels and sums."""
    scores, second = np.empty((n_labels, AT_ONCE), dtype), np.empty(AT_ONCE, dtype)
    return (
        np.empty(AT_ONCE + 2 * cell, np.int32),
        scores,
        second,
        np.empty(AT_ONCE, np.int32),
        np.empty(AT_ONCE, np.float32),
    )


@njit(error_model="numpy")
def draw_row(drawn, terms, noise, place, scratch, r, width):
    """Fill the first label, largest score and sum of ``exp((score - largest) / temperature)`` of a row's sites."""
    first, peak, total = drawn
    by_label, offsets, nodes, shift, top, left, unit = terms
    row, column, full_width, temperature = place
    field, scores, second, label, sums = scratch
    n_labels = len(offsets)
    reach = temperature * (_UNSEEN + math.log(n_labels))
    inverse = np.float32(1 / temperature) if temperature > 0 else _1
    for c0 in range(0, width, AT_ONCE):
        count, here = min(AT_ONCE, width - c0), r * width + c0
        best = peak[here : here + count]
        best[:], second[:], label[:], sums[:] = -_INF, -_INF, 0, 0
        for k in range(n_labels):
            if offsets[k] > -_INF:
                begin = spread(field, nodes[k], r, c0, count, shift, top, left)
                values = field[begin : begin + count]
                follow(scores[k], best, second, label, by_label[k, here : here + count], values, offsets[k], unit, k)
        n_open = 0
        for c in range(count):
            n_open += second[c] >= best[c] - reach
        if n_open and temperature > 0:
            for k in range(n_labels):
                if offsets[k] > -_INF:
                    accumulate(sums, scores[k], best, inverse)
        for c in range(count):
            first[here + c], total[here + c] = label[c], _1
            if temperature > 0 and second[c] >= best[c] - reach:
                total[here + c] = sums[c]
                number = np.int64(row + r) * full_width + column + c0 + c
                first[here + c] = invert(scores, offsets, c, label[c], best[c], sums[c], noise, number, temperature)


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def accumulate(sums, scores, best, inverse):
    """Add ``exp((score - best) · inverse)``, to about 1e-7, to the sums; without branches, so that it vectorises."""
    for c in range(len(best)):
        x = max(np.float32(scores[c] - best[c]) * inverse, np.float32(-87))
        n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        x = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
        series = np.float32(1 / 720) * x + np.float32(1 / 120)
        series = series * x + np.float32(1 / 24)
        series = series * x + np.float32(1 / 6)
        series = series * x + np.float32(0.5)
        series = (series * x + _1) * x + _1
        sums[c] += series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(error_model="numpy")
def invert(scores, offsets, c, best, peak, total, noise, site, temperature):
    """Return the first label at column c: the label whose part of the cumulative distribution holds the uniform."""
    k0, k1, image, sample = noise
    if len(scores) == 2:
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        difference = np.float64(scores[1, c]) - scores[0, c]
        return difference > temperature * math.log(u / (1 - u))
    u = uniform(pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3)) * total
    cumulative, last = 1.0, best
    for k in range(len(scores)):
        if u <= cumulative:
            break
        if k != best and offsets[k] > -_INF:
            cumulative += math.exp((np.float64(scores[k, c]) - peak) / temperature)
            last = k
    return last


@njit(error_model="numpy")
def spread(field, nodes, r, c, count, shift, top, left):
    """Interpolate a label's nodes in row r from the cell of column c; return the position of that column."""
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    x = ((left + c) >> shift) - (left >> shift)
    begin = (left + c) & (cell - 1)
    upper, lower = nodes[y], nodes[y + 1]
    first = (cell - down) * upper[x] + down * lower[x]
    for at in range(0, begin + count, cell):
        x += 1
        second = (cell - down) * upper[x] + down * lower[x]
        value, step = cell * first, second - first
        for j in range(cell):
            field[at + j] = value + np.int32(j) * step
        first = second
    return begin


@njit(error_model="numpy")
def random_row(y, terms, noise, place, r, width):
    """Fill row r of ``y`` with a uniformly random allowed label per site."""
    by_label, offsets = terms[0], terms[1]
    k0, k1, image, sample = noise
    row, column, full_width, _ = place
    for i in range(r * width, (r + 1) * width):
        site = np.int64(row + r) * full_width + column + i % width
        allowed = 0
        for k in range(len(offsets)):
            allowed += by_label[k, i] + offsets[k] > -np.inf
        if len(offsets) == 2:
            bits = pick(site_words(k0, k1, START_BITS, image, sample >> 7, site, 0), (sample >> 5) & 3)
            nth = np.int64((bits >> np.uint32(sample & 31)) & np.uint32(1)) if allowed == 2 else 0
        else:
            word = np.uint64(pick(site_words(k0, k1, START, image, sample >> 2, site, 0), sample & 3))
            nth = np.int64((word * np.uint64(allowed)) >> np.uint64(32))
        label = -1 if allowed else 0  # a masked site has no allowed label where its only one does not occur
        while allowed and nth >= 0:
            label += 1
            nth -= by_label[label, i] + offsets[label] > -np.inf
        y[i] = label
