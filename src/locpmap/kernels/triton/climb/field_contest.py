"""The best label of a site in the climb with error fields: the first label or one of its rivals.

A rival is a neighbour's label with more support than the first label.  The scores of rivals and their noise are
computed here only (see `reference.noise` for clocks and waits).
"""

from __future__ import annotations

import triton
import triton.language as tl

from locpmap.kernels.triton.climb.add_fields import move_of
from locpmap.kernels.triton.climb.potts_contest import byte_of
from locpmap.kernels.triton.climb.potts_grid import lead, support
from locpmap.kernels.triton.lazy_noise import fast_exp, fast_log, leading_bytes, logistic, waiting_time
from locpmap.kernels.triton.philox import LAZY_FINE, LAZY_SITE, pick, words

RARE = tl.constexpr(-80.0)  # log p below which the first label's clock is negligible compared with the wait


@triton.jit
def contest(
    key,
    unary,
    n_sites,
    terms,
    pair,
    corners,
    noise,
    first,
    mine,
    near,
    weight,
    rivals,
    scale,
    SIZES: tl.constexpr,
):
    """Return the best labels; the current label wins ties.

    Args:
        key: Key of the noise, image, sample and site.
        unary: Pointers to the unaries of label 0; those of label k are ``k · n_sites`` further.
        n_sites: Sites of an image.
        terms: `Terms`.
        pair: Image and sample.
        corners: `Corners` of the sites.
        noise: Pointers to the largest scores, and to the log totals of the sites.
        first: First labels.
        mine: Current labels.
        near: Labels of the four neighbours.
        weight: Weights of the edges to them.
        rivals: A bit for each neighbour whose label is a rival.
        scale: Temperature.
        SIZES: `climb_fields.Sizes`.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    k0, k1, image, sample, site = key
    dtype: tl.constexpr = weight[0].dtype
    some = rivals > 0
    if N_LABELS == 2:
        ahead = tl.load(unary + n_sites) + move_of(terms, pair, 1, corners, N_LABELS, SIZES.scales)
        ahead -= tl.load(unary) + move_of(terms, pair, 0, corners, N_LABELS, SIZES.scales)
        if SIZES.noisy:
            ahead -= scale * logistic(k0, k1, image, sample, site, dtype)
        ahead += lead(near, weight)
        label = tl.where(ahead > 0.0, 1, tl.where(ahead < 0.0, 0, mine))
        result = tl.where(some, label, first)
    else:
        if SIZES.noisy:
            w0, w1, w2, w3 = words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0)
            tick = pick(w0, w1, w2, w3, sample & 3) << 24
            w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, 0)
            clock = waiting_time(tick | (w0 >> 8), dtype)
            peak, log_total = tl.load(noise[0]), tl.load(noise[1])
            top = -scale * fast_log(clock)
        else:
            top = tl.load(unary + first.to(tl.int64) * n_sites)
            top += move_of(terms, pair, first.to(tl.int64), corners, N_LABELS, SIZES.scales)
        top += support(first, near, weight)
        result = first
        while tl.max(rivals) > 0:
            # Each lane takes its next rival; results of lanes without one are discarded.
            some = rivals > 0
            k = tl.where(rivals & 4 > 0, near[2], near[3])
            k = tl.where(rivals & 1 > 0, near[0], tl.where(rivals & 2 > 0, near[1], k))
            k = tl.where(some, k, 0)
            rivals &= rivals - 1
            score = tl.load(unary + k.to(tl.int64) * n_sites)
            score += move_of(terms, pair, k.to(tl.int64), corners, N_LABELS, SIZES.scales)
            if SIZES.noisy:
                b0, b1, b2, b3 = leading_bytes(k0, k1, image, sample, site, k // SIZES.room, SIZES.room)
                byte = byte_of(b0, b1, b2, b3, k, SIZES.room)
                w0, w1, w2, w3 = words(k0, k1, LAZY_FINE, image, sample, site, (k + 1) >> 2)
                fine = pick(w0, w1, w2, w3, (k + 1) & 3)
                wait = waiting_time((byte.to(tl.uint32) << 24) | (fine >> 8), dtype)
                log_p = (score - peak) / scale - log_total
                rare = log_p < RARE
                both = tl.where(rare, wait, clock + wait * fast_exp(tl.where(rare, 0.0, -log_p)))
                score = -scale * (fast_log(both) - tl.where(rare, log_p, 0.0))
            score += support(k, near, weight)
            tie = (score == top) & ((k == mine) | ((k < result) & (result != mine)))
            wins = some & ((score > top) | tie)
            result = tl.where(wins, k, result)
            top = tl.where(wins, score, top)
    return result
