"""Perturbed scores of single labels in the climb with error fields (`climb_fields`), and bounds on them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.add_fields import interpolate
from locpmap.kernels.numba.noise import logistic_word, pick, site_words
from locpmap.kernels.reference.noise import LAZY_CLOCK, LAZY_FINE, LAZY_SITE

_LOG2 = math.log(2)


def _bounds():
    """Return the minimum and maximum of ``log(-log u)`` for every leading byte of u, (256, 2), with a margin."""
    edge = np.log(-np.log(np.clip(np.arange(257) / 256, 2.0**-33, 1 - 2.0**-33)))
    return np.stack([edge[1:] - 1e-6, edge[:-1] + 1e-6], axis=1)


BOUNDS = _bounds()


@njit(error_model="numpy")
def perturbed(k, r, c, i, drawn, terms, noise, place):
    """Return the perturbed score of label k at site i, relative to the sum over labels."""
    first, peak, total = drawn
    row, column, full_width, temperature = place
    site = np.int64(row + r) * full_width + column + c
    k0, k1, image, sample = noise
    score = score_of(k, r, c, i, terms)
    if score == -np.inf or temperature == 0:
        return np.float64(score)
    if len(terms[1]) == 2:
        if k == 0:
            return np.float64(score)
        u = (np.float64(logistic_word(k0, k1, image, sample, site)) + 0.5) * 2.0**-32
        return np.float64(score) - temperature * math.log(u / (1 - u))
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    clock = math.log(-math.log(joined(tick, 0, noise, site)))
    if k != first[i]:
        coarse = wait_byte(k, len(terms[1]), noise, site)
        log_p = (np.float64(score) - peak[i]) / temperature - math.log(total[i])
        wait = math.log(-math.log(joined(coarse, k + 1, noise, site))) - log_p
        clock = max(wait, clock) + math.log1p(math.exp(-abs(wait - clock)))
    return -temperature * clock


@njit(error_model="numpy")
def bound_rivals(rivals, n_rivals, r, c, i, drawn, terms, noise, place):
    """Fill bounds of the rivals' scores, divided by the temperature, minus that of the first label.

    In the terms of `reference.noise`, this difference is ``extra / temperature - log(1 + exp(wait - log p - clock))``
    with the logarithms of the rival's wait and of the first label's clock.
    """
    who, extra, low, high = rivals
    row, column, full_width, temperature = place
    k0, k1, image, sample = noise
    n_labels = len(terms[1])
    if n_labels == 2 or temperature == 0:
        low[:n_rivals], high[:n_rivals] = -np.inf, np.inf
        return
    site = np.int64(row + r) * full_width + column + c
    log_total = math.log(drawn[2][i])
    tick = pick(site_words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0), sample & 3) & np.uint32(255)
    for j in range(n_rivals):
        score = score_of(who[j], r, c, i, terms)
        if score == -np.inf:
            low[j], high[j] = -np.inf, -np.inf
            continue
        log_p = (np.float64(score) - drawn[1][i]) / temperature - log_total
        lead, wait = extra[j] / temperature, wait_byte(who[j], n_labels, noise, site)
        # max(x, 0) <= log(1 + exp(x)) <= max(x, 0) + log 2
        low[j] = lead - max(BOUNDS[wait, 1] - BOUNDS[tick, 0] - log_p, 0.0) - _LOG2
        high[j] = lead - max(BOUNDS[wait, 0] - BOUNDS[tick, 1] - log_p, 0.0)


@njit(error_model="numpy")
def wait_byte(k, n_labels, noise, site):
    """Return the leading byte of the wait of label k, as in `reference.lazy_bytes`."""
    k0, k1, image, sample = noise
    bits = 2 if n_labels <= 4 else 3 if n_labels <= 8 else 4  # a sample has 2^bits bytes of a call
    byte = ((sample & ((16 >> bits) - 1)) << bits) + (k & ((1 << bits) - 1))
    word = pick(site_words(k0, k1, LAZY_CLOCK, image, sample >> (4 - bits), site, k >> bits), byte >> 2)
    return word >> np.uint32(8 * (byte & 3)) & np.uint32(255)


@njit(error_model="numpy")
def joined(coarse, m, noise, site):
    """Return the uniform of a leading byte and the 24 bits of fine noise number m."""
    fine = pick(site_words(noise[0], noise[1], LAZY_FINE, noise[2], noise[3], site, m >> 2), m & 3)
    return (np.float64(coarse) * 2.0**24 + np.float64(fine >> np.uint32(8)) + 0.5) * 2.0**-32


@njit(error_model="numpy")
def score_of(k, r, c, i, terms):
    """Return the score of label k with its field, in row r and column c."""
    by_label, offsets, nodes, shift, top, left, unit = terms
    return by_label[k, i] + (offsets[k] + np.float32(interpolate(nodes[k], r, c, shift, top, left)) * unit)
