"""The best label of a site in the climb with error fields: the first label or one of its rivals.

A rival is a neighbour's label with more support than the first label.  The scores of rivals and their noise are
computed here only (see `reference.noise` for clocks and waits).

``arrays`` are the scores, `Terms`, `Draw`, `Field` and `State` of a climb.  ``pair`` numbers an image and a sample, and
``at`` are `Lanes`.
"""

import triton
import triton.language as tl

from locpmap.kernels.triton.climb.add_fields import corners_of, move_of
from locpmap.kernels.triton.climb.potts_contest import repeated
from locpmap.kernels.triton.climb.potts_grid import lead, loads_around, number_of, support, weights
from locpmap.kernels.triton.lazy_noise import byte_of, fast_log, fine_wait, later_clock, leading_bytes, logistic
from locpmap.kernels.triton.philox import LAZY_SITE, pick, words


@triton.jit
def score_of(unary, terms, pair, k, corners, label_apart, SIZES: tl.constexpr):
    """Return the scores of label k without noise; ``unary`` points to those of label 0."""
    score = tl.load(unary + tl.cast(k, tl.int64) * label_apart)
    return score + move_of(terms, pair, k, corners, SIZES.n_labels, SIZES.scales)


@triton.jit
def around(arrays, pair, at, inside):
    """Return the labels of sites, their first labels, and the labels of their neighbours with the edges' weights."""
    scores_ptr, terms, _, field, state = arrays
    own = pair * field.height * field.width + at.site
    seen = loads_around(field, state.labels + own, at, 1, field.width, ".cg")
    near = ()
    for side in tl.static_range(len(seen)):
        near += (seen[side].to(tl.int32),)
    mine = tl.load(state.labels + own, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
    first = tl.load(state.first + own, mask=inside, other=0).to(tl.int32)
    return mine, first, near, weights(field, pair // terms.n_samples, at, scores_ptr.dtype.element_ty)


@triton.jit
def rivals_of(first, near, weight, inside):
    """Return a bit for each neighbour whose label has more support than the first label, which alone can beat it."""
    held = support(first, near, weight)
    rivals = tl.zeros_like(first)
    for side in tl.static_range(len(near)):
        rivals |= (support(near[side], near, weight) > held).to(tl.int32) << side
    return tl.where(inside, rivals & ~repeated(near), 0)


@triton.jit
def contest(arrays, pair, at, inside, temperature, SIZES: tl.constexpr):
    """Return the best labels of contested sites given their neighbours, and the current ones, which win ties."""
    scores_ptr, terms, draw, field, state = arrays
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    n_sites, scale, apart = field.height * field.width, tl.cast(temperature, dtype), state.label_apart
    mine, first, near, weight = around(arrays, pair, at, inside)
    rivals = rivals_of(first, near, weight, inside)
    corners = corners_of(terms, pair, at.row, at.column)
    k0, k1 = draw.k0, draw.k1
    n = pair // terms.n_samples
    image, sample = draw.first_image + n, draw.first_sample + pair % terms.n_samples
    site = number_of(field, at.row, at.column)
    unary = scores_ptr + n * SIZES.n_labels * n_sites + at.site.to(tl.int64) * state.site_apart
    if SIZES.n_labels == 2:
        ahead = score_of(unary, terms, pair, 1, corners, apart, SIZES)
        ahead -= score_of(unary, terms, pair, 0, corners, apart, SIZES)
        if SIZES.noisy:
            ahead -= scale * logistic(k0, k1, image, sample, site, dtype)
        ahead += lead(near, weight)
        label = tl.where(ahead > 0.0, 1, tl.where(ahead < 0.0, 0, mine))
        result = tl.where(rivals > 0, label, first)
    else:
        if SIZES.noisy:
            w0, w1, w2, w3 = words(k0, k1, LAZY_SITE, image, sample >> 2, site, 0)
            clock = fine_wait(pick(w0, w1, w2, w3, sample & 3), 0, k0, k1, image, sample, site, dtype)
            normaliser = tl.load(state.normaliser + pair * n_sites + at.site)
            top = -scale * fast_log(clock)
        else:
            top = score_of(unary, terms, pair, first, corners, apart, SIZES)
        top += support(first, near, weight)
        result = first
        while tl.max(rivals) > 0:
            # Each lane takes its next rival; results of lanes without one are discarded.
            some = rivals > 0
            k = tl.where(some, near[len(near) - 1], 0)
            for side in tl.static_range(len(near) - 2, -1, -1):
                k = tl.where(rivals & (1 << side) > 0, near[side], k)
            rivals &= rivals - 1
            score = score_of(unary, terms, pair, k, corners, apart, SIZES)
            if SIZES.noisy:
                b0, b1, b2, b3 = leading_bytes(k0, k1, image, sample, site, k // SIZES.room, SIZES.room)
                byte = byte_of(b0, b1, b2, b3, k, SIZES.room)
                wait = fine_wait(byte, k + 1, k0, k1, image, sample, site, dtype)
                score = -scale * later_clock(clock, wait, (score - normaliser) / scale)
            score += support(k, near, weight)
            tie = (score == top) & ((k == mine) | ((k < result) & (result != mine)))
            wins = some & ((score > top) | tie)
            result = tl.where(wins, k, result)
            top = tl.where(wins, score, top)
    return result, mine
