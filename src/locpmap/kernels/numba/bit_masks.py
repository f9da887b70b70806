"""Masks of a site: for every state of its neighbours (their labels), a word with one bit per sample, up to 64.

A bit is set if the sample gives the site label 1 in that state.  With log-odds x of label 1, this is so iff the site's
uniform u is below ``sigmoid(x)``.  All samples share the log-odds of a state, so a mask compares the samples' uniforms
with one number; their leading 16 bits nearly always decide.  ``AT_ONCE`` sites are processed together in vector
registers, so arrays are flat tables (state, site) and (sample, site).
"""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inlined, inner
from locpmap.kernels.numba.noise import logistic_word, site_words
from locpmap.kernels.reference.noise import LOGISTIC

AT_ONCE = 16
TAME = 300.0  # bound on log-odds whose exponentials can be multiplied without overflow
_ONE = np.uint64(1)


@inner
def odds_by_state(odds, h, fields, pulls):
    """Compute the odds against label 1 in sixteen states; bit d of a state is the label of neighbour d.

    ``h`` (site) is the log-odds of label 1 from the unaries.  A neighbour adds ``fields`` (neighbour, site) if its
    label is 1 and subtracts it if 0.  ``pulls`` is ``exp(-2 fields)``.
    """
    for j in range(AT_ONCE):
        odds[j] = math.exp(fields[j] + fields[AT_ONCE + j] + fields[2 * AT_ONCE + j] + fields[3 * AT_ONCE + j] - h[j])
    for d in range(4):
        for state in range(1 << d):
            for j in range(AT_ONCE):
                odds[((1 << d) + state) * AT_ONCE + j] = odds[state * AT_ONCE + j] * pulls[d * AT_ONCE + j]
    for j in range(AT_ONCE):
        size = abs(h[j])
        for d in range(4):
            size += abs(fields[d * AT_ONCE + j])
        if not size < TAME:
            for state in range(16):
                field = 0.0
                for d in range(4):
                    field += fields[d * AT_ONCE + j] if state >> d & 1 else -fields[d * AT_ONCE + j]
                odds[state * AT_ONCE + j] = math.exp(-h[j] - field)


@inner
def odds_by_count(odds, h, degrees, field, pull):
    """Compute the odds of five states: the number of neighbours with label 1, from 0 to 4.  All weights are equal."""
    for j in range(AT_ONCE):
        tame = abs(h[j]) + 4 * abs(field) < TAME
        odds[j] = math.exp(degrees[j] * field - h[j])
        for count in range(1, 5):
            at = count * AT_ONCE + j
            odds[at] = odds[at - AT_ONCE] * pull if tame else math.exp((degrees[j] - 2 * count) * field - h[j])


@inner
def odds_alone(odds, h, state):
    """Compute the odds against label 1 without neighbours, as an additional state."""
    for j in range(AT_ONCE):
        odds[state * AT_ONCE + j] = math.exp(-h[j])


@inner
def thresholds(limits, leads, odds, n_states):
    """Compute integers t and their leading 16 bits: x < t iff the uniform (x + 1/2) / 2^32 is below 1 / (1 + odds)."""
    for k in range(n_states * AT_ONCE):
        limit = np.uint64(math.ceil(2.0**32 / (1.0 + odds[k]) - 0.5))
        limits[k] = limit
        leads[k] = np.uint16(min(limit >> np.uint64(16), np.uint64(0xFFFF)))  # for t = 2^32, `look_closer` decides


@inner
def draw(draws, noise, sites, count, n_samples):
    """Draw the leading 16 bits of the uniforms of ``count`` sites; a call of Philox serves eight samples."""
    k0, k1, image, first_sample = noise
    low = np.uint32(0xFFFF)
    for eight in range((n_samples + 7) >> 3):
        for j in range(count):
            at = 8 * eight * AT_ONCE + j
            for word in site_words(k0, k1, LOGISTIC, image, (first_sample >> 3) + eight, sites[j], 0):
                draws[at] = np.uint16(word & low)
                draws[at + AT_ONCE] = np.uint16(word >> np.uint32(16))
                at += 2 * AT_ONCE


@inner
def compare(pieces, close, draws, leads, n_states, n_samples):
    """Compute a mask byte per state, eight samples and site; flag sites with ties of leading bits in ``close``."""
    for j in range(AT_ONCE):
        close[j] = 0
    for eight in range((n_samples + 7) >> 3):
        at = 8 * eight * AT_ONCE
        for state in range(n_states):
            # The eight samples are unrolled, so that the loop over sites is innermost and vectorises.
            for j in range(AT_ONCE):
                t = leads[state * AT_ONCE + j]
                x0, x1 = draws[at + j], draws[at + AT_ONCE + j]
                x2, x3 = draws[at + 2 * AT_ONCE + j], draws[at + 3 * AT_ONCE + j]
                x4, x5 = draws[at + 4 * AT_ONCE + j], draws[at + 5 * AT_ONCE + j]
                x6, x7 = draws[at + 6 * AT_ONCE + j], draws[at + 7 * AT_ONCE + j]
                bits = below(x0, t, 0) | below(x1, t, 1) | below(x2, t, 2) | below(x3, t, 3)
                bits |= below(x4, t, 4) | below(x5, t, 5) | below(x6, t, 6) | below(x7, t, 7)
                near = (x0 == t) | (x1 == t) | (x2 == t) | (x3 == t) | (x4 == t) | (x5 == t) | (x6 == t) | (x7 == t)
                pieces[(state * 8 + eight) * AT_ONCE + j] = bits
                close[j] |= np.uint16(near)


@inlined
def below(x, limit, bit):
    """Return 1 << bit if x is below the limit, else 0."""
    return np.uint16(np.uint16(x < limit) << np.uint16(bit))


@inner
def join(masks, first, pieces, joined, count, n_samples):
    """Join mask bytes into masks (S, n_states) for sites first..first + count; ``joined`` is scratch."""
    whole = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - n_samples)
    for state in range(masks.shape[1]):
        at = 8 * state * AT_ONCE
        for j in range(AT_ONCE):
            a = two(pieces[at + j], pieces[at + AT_ONCE + j])
            b = two(pieces[at + 2 * AT_ONCE + j], pieces[at + 3 * AT_ONCE + j])
            c = two(pieces[at + 4 * AT_ONCE + j], pieces[at + 5 * AT_ONCE + j])
            d = two(pieces[at + 6 * AT_ONCE + j], pieces[at + 7 * AT_ONCE + j])
            low = np.uint32(a) | np.uint32(np.uint32(b) << np.uint32(16))
            high = np.uint32(c) | np.uint32(np.uint32(d) << np.uint32(16))
            joined[j] = (np.uint64(low) | np.uint64(high) << np.uint64(32)) & whole
        for j in range(count):
            masks[first + j, state] = joined[j]


@inlined
def two(low, high):
    """Join two bytes."""
    return np.uint16(low | np.uint16(high << np.uint16(8)))


@inner
def look_closer(masks, draws, limits, leads, noise, site, j, n_samples):
    """Decide by all 32 bits where the leading 16 bits of a uniform of site j equal those of t; masks (n_states,)."""
    k0, k1, image, first_sample = noise
    for s in range(n_samples):
        for state in range(len(masks)):
            if draws[s * AT_ONCE + j] == leads[state * AT_ONCE + j]:
                x = logistic_word(k0, k1, image, first_sample + s, site)
                bit = _ONE << np.uint64(s)
                masks[state] &= ~bit
                if x < limits[state * AT_ONCE + j]:
                    masks[state] |= bit
