"""Sites of a volume: first labels, and random start labels (see `climb_volume`)."""

import math
from typing import Any, NamedTuple

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.field_rows import exp
from locpmap.kernels.numba.noise import pick, site_words
from locpmap.kernels.numba.potts_layout import UNKNOWN
from locpmap.kernels.numba.vectors import doubles, ints, load_ints, select, store, to_doubles
from locpmap.kernels.reference.noise import BITS, LAZY_SITE, LOGISTIC, LOGISTIC_FINE, START, START_BITS

LANES = 8  # samples that climb together: one bit each in a byte of marks
FEW = 8  # labels that are compared in vectors


class Sites(NamedTuple):
    """The described sites, one slot each."""

    best: Any  # (slots,) uint8: the label with the largest score; UNKNOWN if the site is not described
    first: Any  # (slots, 8) uint8: first labels
    tick: Any  # (slots, 8) uint8: leading bytes of their clocks
    inverse_p: Any  # (slots, L | 1) float32: 1 / p of few labels, or of the best of many labels
    threshold: Any  # (slots, 8): of two labels; the second is best if its support minus that of the first is larger


class Odds(NamedTuple):
    """Odds of the labels of sites: their probabilities relative to that of the best label."""

    powers: Any  # (L, n) float64; 0 for the best label
    top: Any  # (n,) the best score
    best: Any  # (n,) int64: the best label
    total: Any  # (n,) the sum, with 1 for the best label


def odds_room(n_labels, n):
    """Allocate the odds of n sites."""
    return Odds(np.empty((n_labels, n)), np.empty(n), np.empty(n, np.int64), np.empty(n))


def room(slots, n_labels):
    """Allocate the described sites."""
    two = n_labels == 2
    return Sites(
        np.empty(slots, np.uint8),
        np.empty((slots, LANES), np.uint8),
        np.empty((0 if two else slots, LANES), np.uint8),
        np.empty((0 if two else slots, n_labels if n_labels <= FEW else 1), np.float32),
        np.empty((slots if two else 0, LANES)),
    )


@inner
def describe_row(sites, unary, draw, temperature, scratch, dirty, row, lanes):
    """Describe the marked sites of a row in columns of one parity."""
    begin, slot0, site0, width, parity = row
    n_labels, inverse, count = unary.shape[1], 1 / temperature, 0
    for x in range(parity, width, 2):
        count += dirty[begin + x] != 0 and sites.best[slot0 + x] == UNKNOWN
    if count == 0:
        return
    at_once = n_labels > 2 and 8 * count > width
    if at_once:
        weigh_sites(unary, inverse, begin + parity, (width - parity + 1) >> 1, scratch.odds)
    for x in range(parity, width, 2):
        i, slot = begin + x, slot0 + x
        if dirty[i] == 0 or sites.best[slot] != UNKNOWN:
            continue
        if n_labels == 2:
            describe_two(sites, unary, draw, temperature, i, slot, site0 + x, lanes)
            continue
        if not at_once:
            weigh_sites(unary, inverse, i, 1, scratch.odds)
        describe_site(sites, draw, scratch.words, scratch.odds, x >> 1 if at_once else 0, slot, site0 + x, lanes)


@inner
def weigh_sites(unary, inverse, first, n, odds):
    """Fill the odds of n sites, every second one from ``first`` on."""
    powers, top, best, total = odds
    for k in range(len(powers)):
        mine = powers[k]
        for j in range(n):
            mine[j] = unary[first + 2 * j, k]
    for j in range(n):
        top[j], best[j], total[j] = powers[0, j], 0, 0.0
    for k in range(1, len(powers)):
        mine = powers[k]
        for j in range(n):
            best[j] = k if mine[j] > top[j] else best[j]
            top[j] = mine[j] if mine[j] > top[j] else top[j]
    for k in range(len(powers)):
        mine = powers[k]
        for j in range(n):
            power = exp((mine[j] - top[j]) * inverse)
            mine[j] = 0.0 if best[j] == k else power
        for j in range(n):
            total[j] += mine[j]
    for j in range(n):
        total[j] += 1.0


@inlined
def describe_two(sites, unary, draw, temperature, i, slot, site, lanes):
    """Draw the first labels and thresholds of a site with two labels."""
    k0, k1, image, sample0 = draw
    sites.best[slot] = 0
    ahead = np.float64(unary[i, 1]) - np.float64(unary[i, 0])
    for lane in range(lanes):
        sample = sample0 + lane
        if lane == 0 or sample & 7 == 0:
            coarse = site_words(k0, k1, LOGISTIC, image, sample >> 3, site, 0)
            fine = site_words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site, 0)
        j, shift = sample >> 1 & 3, np.uint32(16 * (sample & 1))
        high = pick(coarse, j) >> shift & np.uint32(0xFFFF)
        low = pick(fine, j) >> shift & np.uint32(0xFFFF)
        u = (np.float64(np.uint64(high) << np.uint64(16) | np.uint64(low)) + 0.5) * 2.0**-32
        limit = temperature * math.log(u / (1 - u)) - ahead
        sites.threshold[slot, lane] = limit
        sites.first[slot, lane] = limit < 0


@inlined
def describe_site(sites, draw, words, odds, j, slot, site, lanes):
    """Draw the first labels of a site with more than two labels, and the leading bytes of their clocks."""
    powers, best, total = odds.powers, odds.best[j], odds.total[j]
    n_labels = len(powers)
    if n_labels <= FEW:
        for k in range(n_labels):
            sites.inverse_p[slot, k] = total / powers[k, j]
        sites.inverse_p[slot, best] = total
    else:
        sites.inverse_p[slot, 0] = total
    lane_words(words, draw, LAZY_SITE, site, lanes)
    word = load_ints(words, 0)
    # The uniform minus the probability of the best label, which comes first: the others share it in natural order.
    u = (to_doubles(word >> ints(32 - BITS)) + doubles(0.5)) * doubles(2.0**-BITS) * doubles(total) - doubles(1.0)
    label, below = ints(0), 0.0
    for k in range(n_labels - 1):
        below += powers[k, j]
        label += select(u > doubles(below), ints(1), ints(0))
    sites.best[slot] = best
    store(sites.first.reshape(-1), LANES * slot, select(u > doubles(0.0), label, ints(best)))
    store(sites.tick.reshape(-1), LANES * slot, word)


@inner
def lane_words(words, draw, stream, site, lanes):
    """Fill one word per lane; four samples share a call of Philox."""
    k0, k1, image, sample0 = draw
    for lane in range(lanes):
        sample = sample0 + lane
        if lane == 0 or sample & 3 == 0:
            call = site_words(k0, k1, stream, image, sample >> 2, site, 0)
        words[lane] = pick(call, sample & 3)


@inner
def start_row(y, unary, draw, begin, site0, width, lane0, lanes, words, skipped):
    """Fill random start labels of a row, except at columns of parity ``skipped`` (2: none)."""
    k0, k1, image, sample0 = draw
    n_labels = unary.shape[1]
    for x in range(width):
        i = begin + x
        if x & 1 == skipped:
            for lane in range(lanes):
                y[i, lane0 + lane] = 0
            continue
        allowed = 0
        for k in range(n_labels):
            allowed += unary[i, k] > -np.inf
        if n_labels == 2:
            for lane in range(lanes):
                sample = sample0 + lane
                if lane == 0 or sample & 127 == 0:
                    call = site_words(k0, k1, START_BITS, image, sample >> 7, site0 + x, 0)
                bit = pick(call, (sample >> 5) & 3) >> np.uint32(sample & 31) & np.uint32(1)
                y[i, lane0 + lane] = bit if allowed == 2 else 0
        else:
            lane_words(words, draw, START, site0 + x, lanes)
            for lane in range(lanes):
                y[i, lane0 + lane] = np.uint64(words[lane]) * np.uint64(allowed) >> np.uint64(32)
        if 0 < allowed < n_labels:  # a masked site has no label where its only one does not occur
            for lane in range(lanes):
                label, nth = -1, np.int64(y[i, lane0 + lane])
                while nth >= 0:
                    label += 1
                    nth -= unary[i, label] > -np.inf
                y[i, lane0 + lane] = label
