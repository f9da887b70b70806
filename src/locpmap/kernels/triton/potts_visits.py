"""Visits of the Potts climb: the first one, which draws a site's noise, and later ones, which read it back.

A label has a mark, the upper bit of its field, where the last visit changed it: a site with no marked neighbour stays.
"""

from __future__ import annotations

import triton
import triton.language as tl

from locpmap.kernels import perturbation
from locpmap.kernels.triton.lazy_noise import fast_log, leading_bytes, log_odds, start_bits, waiting_time
from locpmap.kernels.triton.philox import (
    LAZY_FINE,
    LAZY_SITE,
    LOGISTIC,
    LOGISTIC_FINE,
    START,
    pick,
    uniform,
    words,
)
from locpmap.kernels.triton.potts_grid import around, field_of, lanes, lanes_at, lead, mark_of, support, weights

RANDOM, PERTURBED = tl.constexpr(perturbation.RANDOM), tl.constexpr(perturbation.PERTURBED)


@triton.jit
def start_words(
    unary_ptr,
    given_ptr,
    terms,
    draw,
    field,
    n,
    at,
    START_FROM: tl.constexpr,
    N_LABELS: tl.constexpr,
    PACK: tl.constexpr,
    BITS: tl.constexpr,
    word_type: tl.constexpr,
):
    """The labels that the lanes start from, random or given."""
    if START_FROM == RANDOM:
        facts = tl.load(terms.facts + at.site, mask=at.inside, other=0)
        allowed = facts >> 16
        image, sample = draw.first_image + n, draw.first_sample + at.word.to(tl.int64) * PACK
        site = field.first_site + at.row.to(tl.int64) * field.full_width + at.column
        result = tl.zeros(at.site.shape, word_type)
        if N_LABELS == 2:
            bits = start_bits(draw.k0, draw.k1, image, sample, site)
            for j in tl.static_range(PACK):
                label = tl.where(allowed == 2, ((bits >> j) & 1).to(tl.int32), facts & 65535)
                result |= label.to(word_type) << (j * BITS)
        else:
            w0, w1, w2, w3 = words(draw.k0, draw.k1, START, image, sample >> 2, site, 0)
            some_forbidden = tl.min(tl.where(at.inside, allowed, N_LABELS)) < N_LABELS
            for j in tl.static_range(PACK):
                nth = ((pick(w0, w1, w2, w3, j).to(tl.int64) * allowed) >> 32).to(tl.int32)
                label = nth
                if some_forbidden:
                    seen = tl.zeros_like(nth)
                    for k in range(N_LABELS):
                        place = unary_ptr + at.site.to(tl.int64) * N_LABELS + k
                        free = tl.load(place, mask=at.inside, other=0.0) > float("-inf")
                        label = tl.where(free & (seen == nth), k, label)
                        seen += free.to(tl.int32)
                result |= label.to(word_type) << (j * BITS)
    else:
        label = tl.load(given_ptr + n * field.height * field.width + at.site, mask=at.inside, other=0).to(word_type)
        result = label
        for j in tl.static_range(1, PACK):
            result |= label << (j * BITS)
    return result


@triton.jit
def first_label(word, likeliest, cumulative_ptr, inside, N_LABELS: tl.constexpr, dtype: tl.constexpr):
    """The label that the lazy scheme's first word picks."""
    u = uniform(word).to(dtype)
    winner = likeliest
    for step in range(N_LABELS):
        k = N_LABELS - 1 - step
        bar = tl.load(cumulative_ptr + k, mask=inside, other=0.0)
        winner = tl.where((u <= bar) & (k != likeliest), k, winner)
    return tl.where(u <= tl.load(cumulative_ptr + likeliest, mask=inside, other=0.0), likeliest, winner)


@triton.jit
def first_visit(
    unary_ptr,
    given_ptr,
    terms,
    scores_ptr,
    firsts_ptr,
    draw,
    field,
    labels_ptr,
    changed_ptr,
    n_samples,
    n,
    tile,
    colour,
    items,
    scale,
    START_FROM: tl.constexpr,
    N_LABELS: tl.constexpr,
    ROOM: tl.constexpr,
    PACK: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw a tile's noise, keep what later visits need of it, and give the tile its best labels.

    Kept are the perturbed scores (K · PACK, items) and their best labels (items, PACK).  Where climbs start at
    the perturbed maximum, that is all the labels there are so far, whatever the neighbours say.
    """
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    word_type: tl.constexpr = labels_ptr.dtype.element_ty
    at = lanes(field, tile, colour, BLOCK)
    image, sample = draw.first_image + n, draw.first_sample + at.word.to(tl.int64) * PACK
    site = field.first_site + at.row.to(tl.int64) * field.full_width + at.column
    y, left, right, up, down = around(field, labels_ptr, at)
    w_left, w_right, w_up, w_down = weights(field, n, at, at.inside, dtype)
    place = at.site.to(tl.int64) * N_LABELS
    score_ptr = scores_ptr + at.number
    result = tl.zeros(at.site.shape, word_type)
    if N_LABELS == 2:
        gap = tl.load(unary_ptr + place + 1, mask=at.inside, other=0.0)
        gap -= tl.load(unary_ptr + place, mask=at.inside, other=0.0)
        c0, c1, c2, c3 = words(draw.k0, draw.k1, LOGISTIC, image, sample >> 3, site, 0)
        f0, f1, f2, f3 = words(draw.k0, draw.k1, LOGISTIC_FINE, image, sample >> 3, site, 0)
        for j in tl.static_range(PACK):
            coarse = pick(c0, c1, c2, c3, j // 2) >> (j % 2 * 16)
            fine = pick(f0, f1, f2, f3, j // 2) >> (j % 2 * 16)
            ahead = (gap - scale * log_odds(coarse, fine, dtype)).to(dtype)
            tl.store(score_ptr + j * items, ahead, mask=at.inside)
            if START_FROM != PERTURBED:
                ahead += lead(
                    *(
                        field_of(left, j, BITS),
                        field_of(right, j, BITS),
                        field_of(up, j, BITS),
                        field_of(down, j, BITS),
                    ),
                    *(w_left, w_right, w_up, w_down),
                )
            result |= (ahead > 0).to(word_type) << (j * BITS)
    else:
        firsts = tl.zeros(at.site.shape, word_type)
        likeliest = tl.load(terms.facts + at.site, mask=at.inside, other=0) & 65535
        s0, s1, s2, s3 = words(draw.k0, draw.k1, LAZY_SITE, image, sample >> 2, site, 0)
        for j in range(PACK):  # not unrolled: the code is long, and has enough to do at a time
            word = pick(s0, s1, s2, s3, j)
            winner = first_label(word, likeliest, terms.cumulative + place, at.inside, N_LABELS, dtype)
            w0, w1, w2, w3 = words(draw.k0, draw.k1, LAZY_FINE, image, sample + j, site, 0)
            rings = waiting_time((word << 24) | (w0 >> 8), dtype)
            own = -scale * fast_log(rings)
            near = field_of(left, j, BITS), field_of(right, j, BITS), field_of(up, j, BITS), field_of(down, j, BITS)
            label = winner
            top = tl.full(at.site.shape, float("-inf"), dtype)
            b0, b1, b2, b3 = leading_bytes(draw.k0, draw.k1, image, sample + j, site, 0, ROOM)
            for q in range((N_LABELS + 3) // 4):  # four labels: a word of leading bytes, and one of the rest each
                if (q > 0) & (q % (ROOM // 4) == 0):
                    b0, b1, b2, b3 = leading_bytes(draw.k0, draw.k1, image, sample + j, site, q // (ROOM // 4), ROOM)
                leading = pick(b0, b1, b2, b3, q % (ROOM // 4))
                u0, u1, u2, u3 = words(draw.k0, draw.k1, LAZY_FINE, image, sample + j, site, q + 1)
                for m in tl.static_range(4):
                    k = q * 4 + m
                    wait = waiting_time(((leading >> (m * 8)) << 24) | (pick(w1, w2, w3, u0, m) >> 8), dtype)
                    there = at.inside & (k < N_LABELS)
                    log_p = tl.load(terms.log_p + place + k, mask=there, other=float("-inf"))
                    # log(rings + wait / p); beside 1 / p above e^80 the first label's clock is nothing
                    rare = log_p < -80.0
                    clock = fast_log(tl.where(rare, wait, rings + wait * tl.exp(tl.where(rare, 0.0, -log_p))))
                    score = tl.where(k == winner, own, -scale * (clock - tl.where(rare, log_p, 0.0))).to(dtype)
                    tl.store(score_ptr + (k * PACK + j) * items, score, mask=there)
                    score += support(k, *near, w_left, w_right, w_up, w_down)
                    label = tl.where(score > top, k, label)
                    top = tl.maximum(top, score)
                w1, w2, w3 = u1, u2, u3
            tl.store(firsts_ptr + at.number * PACK + j, winner.to(firsts_ptr.dtype.element_ty), mask=at.inside)
            firsts |= winner.to(word_type) << (j * BITS)
            result |= label.to(word_type) << (j * BITS)
        if START_FROM == PERTURBED:
            result = firsts
    if START_FROM != PERTURBED:
        # What the first colour started from leaves no trace but the note that a sample has changed.
        note = changed_ptr + n * n_samples + at.word * PACK
        before = result
        if colour == 1:
            before = tl.load(y, mask=at.inside, other=0)
        else:
            unmoved = tl.zeros(at.site.shape, tl.int1)
            for s in tl.static_range(PACK):
                real = at.inside & (at.word * PACK + s < n_samples)
                unmoved = unmoved | (tl.load(note + s, mask=real, other=1) < 1)
            if tl.max(unmoved.to(tl.int32)) > 0:
                how = (unary_ptr, given_ptr, terms, draw, field, n, at)
                before = start_words(*how, START_FROM, N_LABELS, PACK, BITS, word_type)
        result = note_changes(before, result, note, 1, at, n_samples, PACK, BITS)
    tl.store(y, result, mask=at.inside)


@triton.jit
def list_active(
    labels_ptr,
    list_ptr,
    field,
    tile,
    colour,
    count,
    everywhere,
    PACK: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Append the (lane, sample) pairs of a tile that have a marked neighbour, or all, to a list; clear their own marks.

    A pair is the number of its lane times PACK plus that of its sample in the word.  Returns the new length.
    """
    word_type: tl.constexpr = labels_ptr.dtype.element_ty
    at = lanes(field, tile, colour, BLOCK)
    y, left, right, up, down = around(field, labels_ptr, at)
    before = tl.load(y, mask=at.inside, other=0, cache_modifier=".cg")
    marks = left | right | up | down
    bare = tl.zeros(at.site.shape, word_type)
    n_active = tl.zeros(at.site.shape, tl.int32)
    for j in tl.static_range(PACK):
        bare |= field_of(before, j, BITS).to(word_type) << (j * BITS)
        n_active += (at.inside & (everywhere | (mark_of(marks, j, BITS) != 0))).to(tl.int32)
    tl.store(y, bare, mask=at.inside & (bare != before))
    total = tl.sum(n_active)
    if total > 0:
        place = list_ptr + count + tl.cumsum(n_active, axis=0) - n_active
        for j in tl.static_range(PACK):
            active = at.inside & (everywhere | (mark_of(marks, j, BITS) != 0))
            tl.store(place, at.number * PACK + j, mask=active)
            place += active.to(tl.int32)
    return count + total


@triton.jit
def later_visits(
    scores_ptr,
    firsts_ptr,
    list_ptr,
    field,
    labels_ptr,
    changed_ptr,
    n_samples,
    n,
    first,
    count,
    colour,
    items,
    sweep,
    N_LABELS: tl.constexpr,
    PACK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Give BLOCK pairs of the list, from the first on, their best labels.  Pointers are to single labels here."""
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    kept: tl.constexpr = labels_ptr.dtype.element_ty
    MARK: tl.constexpr = 128 if kept == tl.uint8 else 16384
    entry = first + tl.arange(0, BLOCK)
    inside = entry < count
    pair = tl.load(list_ptr + entry, mask=inside, other=0)
    number = pair // PACK
    j = pair % PACK
    at = lanes_at(field, number, inside, colour)
    across, along = field.site_apart * PACK, field.width * field.site_apart * PACK
    r = at.word * PACK + j
    y = labels_ptr + at.site.to(tl.int64) * across + r
    mine = tl.load(y, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
    left = tl.load(y - across, mask=inside & (at.column > 0), other=0, cache_modifier=".cg").to(tl.int32)
    right = tl.load(y + across, mask=inside & (at.column + 1 < field.width), other=0, cache_modifier=".cg").to(tl.int32)
    up = tl.load(y - along, mask=inside & (at.row > 0), other=0, cache_modifier=".cg").to(tl.int32)
    down = tl.load(y + along, mask=inside & (at.row + 1 < field.height), other=0, cache_modifier=".cg").to(tl.int32)
    near = (left & (MARK - 1), right & (MARK - 1), up & (MARK - 1), down & (MARK - 1))
    w_left, w_right, w_up, w_down = weights(field, n, at, inside, dtype)
    score_ptr = scores_ptr + number + j * items
    if N_LABELS == 2:
        ahead = tl.load(score_ptr, mask=inside, other=0.0) + lead(*near, w_left, w_right, w_up, w_down)
        label = tl.where(ahead > 0, 1, tl.where(ahead < 0, 0, mine))
    else:
        # Weights are not negative: nobody wins but the perturbed maximum and the neighbours' labels.
        label = tl.load(firsts_ptr + number * PACK + j, mask=inside, other=0).to(tl.int32)
        top = tl.load(score_ptr + label * PACK * items, mask=inside, other=0.0)
        top += support(label, *near, w_left, w_right, w_up, w_down)
        held = tl.where(label == mine, top, float("-inf"))
        for side in tl.static_range(4):
            k = near[side]
            score = tl.load(score_ptr + k * PACK * items, mask=inside, other=float("-inf"))
            score += support(k, *near, w_left, w_right, w_up, w_down)
            label = tl.where(score > top, k, label)
            top = tl.maximum(top, score)
            held = tl.where(k == mine, score, held)
        label = tl.where(top > held, label, mine)
    moved = inside & (label != mine)
    tl.store(y, (label | MARK).to(kept), mask=moved)
    note = changed_ptr + n * n_samples + r
    real = moved & (r < n_samples)
    stale = real & (tl.load(note, mask=real, other=sweep) < sweep)
    tl.store(note, sweep + tl.zeros([BLOCK], tl.int32), mask=stale)


@triton.jit
def note_changes(before, after, note, sweep, at, n_samples, PACK: tl.constexpr, BITS: tl.constexpr):
    """Words of labels with marks where they changed, and the sweep's number noted for the samples in which any did."""
    result = after
    differ = before ^ after
    if tl.max((at.inside & (differ != 0)).to(tl.int32)) > 0:
        one = tl.full(after.shape, 1, after.dtype)
        for j in tl.static_range(PACK):
            moved = at.inside & (((differ >> (j * BITS)) & ((1 << BITS) - 1)) != 0)
            result |= tl.where(moved, one << (j * BITS + BITS - 1), 0)
            real = moved & (at.word * PACK + j < n_samples)
            stale = real & (tl.load(note + j, mask=real, other=sweep) < sweep)
            tl.store(note + j, sweep + tl.zeros(at.site.shape, tl.int32), mask=stale)
    return result
