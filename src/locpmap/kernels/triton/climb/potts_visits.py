"""Visits of the Potts climb: starting labels, first visits, and later visits of the pairs that may change.

First visits draw the noise, which decides most labels immediately.  Pairs (a lane and a sample of its word) whose label
a later change may affect wait in a queue.  While a pair is queued, the top bit of its label's field, its mark, is set.
So no pair is queued twice.
"""

import triton
import triton.language as tl

from locpmap.kernels import perturbation
from locpmap.kernels.triton.climb.potts_contest import bytes_near, contest, pulls, rivals
from locpmap.kernels.triton.climb.potts_grid import (
    around,
    field_of,
    fields_of,
    keys_of,
    lanes,
    lanes_at,
    lead,
    loads_around,
    support,
    weights,
)
from locpmap.kernels.triton.lazy_noise import bytes_of_sample, log_odds, start_bits
from locpmap.kernels.triton.perturb import nth_allowed
from locpmap.kernels.triton.philox import LAZY_CLOCK, LAZY_SITE, LOGISTIC, LOGISTIC_FINE, START, pick, uniform, words

RANDOM, PERTURBED = tl.constexpr(perturbation.RANDOM), tl.constexpr(perturbation.PERTURBED)


@triton.jit
def start_words(unary_ptr, given_ptr, image, at, SIZES: tl.constexpr):
    """Return the words of the lanes' starting labels, random or given."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    PACK: tl.constexpr = SIZES.pack
    BITS: tl.constexpr = SIZES.bits
    word_type: tl.constexpr = image.words.dtype.element_ty
    if SIZES.start == RANDOM:
        draw = image.draw
        facts = tl.load(image.terms.facts + at.site, mask=at.inside, other=0)
        allowed = facts >> 16
        number, sample, site = keys_of(image, at, PACK)
        result = tl.zeros(at.site.shape, word_type)
        if N_LABELS == 2:
            bits = start_bits(draw.k0, draw.k1, number, sample, site)
            for j in tl.static_range(PACK):
                label = tl.where(allowed == 2, ((bits >> j) & 1).to(tl.int32), facts & 65535)
                result |= label.to(word_type) << (j * BITS)
        else:
            w0, w1, w2, w3 = words(draw.k0, draw.k1, START, number, sample >> 2, site, 0)
            some_forbidden = tl.min(tl.where(at.inside, allowed, N_LABELS)) < N_LABELS
            for j in tl.static_range(PACK):
                nth = ((pick(w0, w1, w2, w3, j).to(tl.int64) * allowed) >> 32).to(tl.int32)
                label = nth
                if some_forbidden:
                    label = nth_allowed(unary_ptr + at.site.to(tl.int64) * N_LABELS, nth, at.inside, N_LABELS)
                result |= label.to(word_type) << (j * BITS)
    else:
        place = given_ptr + image.n * image.field.height * image.field.width + at.site
        label = tl.load(place, mask=at.inside, other=0).to(word_type)
        result = label
        for j in tl.static_range(1, PACK):
            result |= label << (j * BITS)
    return result


@triton.jit
def first_labels(s0, s1, s2, s3, image, at, SIZES: tl.constexpr):
    """Return the first labels (smallest clocks) of four samples as a word, from the uniforms of the lazy scheme."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    BITS: tl.constexpr = SIZES.bits
    terms = image.terms
    word_type: tl.constexpr = image.words.dtype.element_ty
    dtype: tl.constexpr = terms.cumulative.dtype.element_ty
    likeliest = tl.load(terms.facts + at.site, mask=at.inside, other=0) & 65535
    bars = terms.cumulative + at.site.to(tl.int64) * N_LABELS
    u0, u1, u2, u3 = uniform(s0).to(dtype), uniform(s1).to(dtype), uniform(s2).to(dtype), uniform(s3).to(dtype)
    a0, a1, a2, a3 = likeliest, likeliest, likeliest, likeliest
    for step in range(N_LABELS):
        k = N_LABELS - 1 - step
        bar = tl.load(bars + k, mask=at.inside & (k != likeliest), other=-1.0)
        a0, a1 = tl.where(u0 <= bar, k, a0), tl.where(u1 <= bar, k, a1)
        a2, a3 = tl.where(u2 <= bar, k, a2), tl.where(u3 <= bar, k, a3)
    bar = tl.load(bars + likeliest, mask=at.inside, other=2.0)
    a0, a1 = tl.where(u0 <= bar, likeliest, a0), tl.where(u1 <= bar, likeliest, a1)
    a2, a3 = tl.where(u2 <= bar, likeliest, a2), tl.where(u3 <= bar, likeliest, a3)
    low = a0.to(word_type) | (a1.to(word_type) << BITS)
    return low | (a2.to(word_type) << (2 * BITS)) | (a3.to(word_type) << (3 * BITS))


@triton.jit(noinline=True)
def first_visit(unary_ptr, given_ptr, image, drawn, list_ptr, count, tile, colour, SIZES: tl.constexpr):
    """Draw a tile's noise, store the part that later visits need, and set the tile's best labels.

    Pairs (a lane and a sample) that need more noise bits keep their label and are appended to the list; return its
    length.  Climbs that start at the perturbed maximum take each site's own best label and ignore its neighbours.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    PACK: tl.constexpr = SIZES.pack
    BITS: tl.constexpr = SIZES.bits
    ROOM: tl.constexpr = SIZES.room
    START_FROM: tl.constexpr = SIZES.start
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    word_type: tl.constexpr = image.words.dtype.element_ty
    terms, draw, field, scale = image.terms, image.draw, image.field, image.scale
    at = lanes(field, tile, colour, SIZES.tile)
    number, sample, site = keys_of(image, at, PACK)
    y, around_words = around(field, image.words, at)
    weight = weights(field, image.n, at, dtype)
    place = at.site.to(tl.int64) * N_LABELS
    result = tl.zeros(at.site.shape, word_type)
    undecided = tl.zeros(at.site.shape, tl.int32)
    if N_LABELS == 2:
        gap = tl.load(unary_ptr + place + 1, mask=at.inside, other=0.0)
        gap -= tl.load(unary_ptr + place, mask=at.inside, other=0.0)
        c0, c1, c2, c3 = words(draw.k0, draw.k1, LOGISTIC, number, sample >> 3, site, 0)
        f0, f1, f2, f3 = words(draw.k0, draw.k1, LOGISTIC_FINE, number, sample >> 3, site, 0)
        for j in tl.static_range(PACK):
            coarse = pick(c0, c1, c2, c3, j // 2) >> (j % 2 * 16)
            fine = pick(f0, f1, f2, f3, j // 2) >> (j % 2 * 16)
            ahead = (gap - scale * log_odds(coarse, fine, dtype)).to(dtype)
            tl.store(drawn.scores + at.number + j * image.items, ahead, mask=at.inside)
            if START_FROM != PERTURBED:
                ahead += lead(fields_of(around_words, j, BITS), weight)
            result |= (ahead > 0).to(word_type) << (j * BITS)
    else:
        SHARED: tl.constexpr = 16 // ROOM  # samples whose leading bytes share one Philox call
        s0, s1, s2, s3 = words(draw.k0, draw.k1, LAZY_SITE, number, sample >> 2, site, 0)
        result = first_labels(s0, s1, s2, s3, image, at, SIZES)
        ticks = (s0 & 255) | ((s1 & 255) << 8) | ((s2 & 255) << 16) | ((s3 & 255) << 24)
        tl.store(drawn.firsts + at.number, result, mask=at.inside)
        tl.store(drawn.ticks + at.number, ticks.to(tl.int32, bitcast=True), mask=at.inside)
        if START_FROM != PERTURBED:
            pull = pulls(weight, scale)
            for call in range(PACK // SHARED):  # not unrolled: the body is long and has enough parallelism
                w0, w1, w2, w3 = words(draw.k0, draw.k1, LAZY_CLOCK, number, sample // SHARED + call, site, 0)
                for nth in tl.static_range(SHARED):
                    j = call * SHARED + nth
                    near = fields_of(around_words, j, BITS)
                    b0, b1, b2, b3 = bytes_of_sample(w0, w1, w2, w3, nth, ROOM)
                    leading = bytes_near(draw, number, sample + j, site, near, b0, b1, b2, b3, N_LABELS, ROOM)
                    tick = ((ticks >> (j * 8)) & 255).to(tl.int32)
                    first = field_of(result, j, BITS)
                    ahead = rivals(first, near, pull, leading, tick, terms.log_p + place, at.inside)
                    undecided |= (at.inside & (ahead > 0)).to(tl.int32) << j
    if START_FROM != PERTURBED:
        # The starting labels of colour 0 are not stored.  They are recomputed only if a sample has no recorded change,
        # or if a pair is undecided: its starting label wins ties.
        note = image.changed + at.word * PACK
        before = result
        if colour == 1:
            before = tl.load(y, mask=at.inside, other=0)
        else:
            needed = undecided != 0
            for s in tl.static_range(PACK):
                real = at.inside & (at.word * PACK + s < image.n_samples)
                needed = needed | (tl.load(note + s, mask=real, other=1) < 1)
            if tl.max(needed.to(tl.int32)) > 0:
                before = start_words(unary_ptr, given_ptr, image, at, SIZES)
        FIELD: tl.constexpr = (1 << BITS) - 1
        for j in tl.static_range(PACK):
            whole = tl.full(result.shape, FIELD, word_type) << (j * BITS)
            result = tl.where((undecided >> j) & 1 != 0, (result & ~whole) | (before & whole), result)
        differ = before ^ result
        if tl.max((at.inside & (differ != 0)).to(tl.int32)) > 0:
            for j in tl.static_range(PACK):
                moved = at.inside & (((differ >> (j * BITS)) & FIELD) != 0)
                real = moved & (at.word * PACK + j < image.n_samples)
                stale = real & (tl.load(note + j, mask=real, other=1) < 1)
                tl.store(note + j, tl.full(at.site.shape, 1, tl.int32), mask=stale)
    tl.store(y, result, mask=at.inside)
    if N_LABELS > 2:
        count = append(list_ptr, count, undecided, at.number, PACK)
    return count


@triton.jit
def append(list_ptr, count, which, number, PACK: tl.constexpr):
    """Append the pairs whose bit is set in ``which`` to a list; return its new length.

    A pair is encoded as the number of its lane times PACK plus the index of its sample in the word.
    """
    many = tl.zeros(which.shape, tl.int32)
    for j in tl.static_range(PACK):
        many += (which >> j) & 1
    total = tl.sum(many)
    if total > 0:
        place = list_ptr + count + tl.cumsum(many, axis=0) - many
        for j in tl.static_range(PACK):
            some = (which >> j) & 1
            tl.store(place, number * PACK + j, mask=some != 0)
            place += some
    return count + total


@triton.jit(noinline=True)
def list_open(image, drawn, list_ptr, count, tile, colour, SIZES: tl.constexpr):
    """Append the pairs of a tile whose label may change to a list; return its new length."""
    PACK: tl.constexpr = SIZES.pack
    BITS: tl.constexpr = SIZES.bits
    at = lanes(image.field, tile, colour, SIZES.tile)
    y, around_words = around(image.field, image.words, at)
    before = tl.load(y, mask=at.inside, other=0, cache_modifier=".cg")
    weight = weights(image.field, image.n, at, drawn.scores.dtype.element_ty)
    which = tl.zeros(at.site.shape, tl.int32)
    if SIZES.n_labels > 2:
        firsts = tl.load(drawn.firsts + at.number, mask=at.inside, other=0)
    for j in tl.static_range(PACK):
        near, mine = fields_of(around_words, j, BITS), field_of(before, j, BITS)
        if SIZES.n_labels == 2:
            ahead = tl.load(drawn.scores + at.number + j * image.items, mask=at.inside, other=0.0) + lead(near, weight)
            movable = tl.where(mine > 0, ahead < 0, ahead > 0)
        else:
            first = field_of(firsts, j, BITS)
            most = tl.maximum(support(near[0], near, weight), support(near[1], near, weight))
            most = tl.maximum(most, tl.maximum(support(near[2], near, weight), support(near[3], near, weight)))
            movable = (first != mine) | (most > support(first, near, weight))
        which |= (at.inside & movable).to(tl.int32) << j
    return append(list_ptr, count, which, at.number, PACK)


@triton.jit(noinline=True)
def visit(image, drawn, list_ptr, queue_ptr, waiting_ptr, first, count, colour, sweep, pushing, SIZES: tl.constexpr):
    """Set the best labels of ``SIZES.visit`` pairs of the list, from ``first`` on, and clear their marks.

    If ``pushing``, append the neighbours of changed pairs to the queue, whose length is at ``waiting_ptr``.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    PACK: tl.constexpr = SIZES.pack
    BLOCK: tl.constexpr = SIZES.visit
    field, labels_ptr = image.field, image.labels
    dtype: tl.constexpr = drawn.scores.dtype.element_ty
    kept: tl.constexpr = labels_ptr.dtype.element_ty
    PLAIN: tl.constexpr = 127 if kept == tl.uint8 else 32767
    entry = first + tl.arange(0, BLOCK)
    inside = entry < count
    pair = tl.load(list_ptr + entry, mask=inside, other=0, cache_modifier=".cg")
    j = pair % PACK
    at = lanes_at(field, pair // PACK, inside, colour)
    across, along = field.site_apart * PACK, field.width * field.site_apart * PACK
    r = at.word * PACK + j
    y = labels_ptr + at.site.to(tl.int64) * across + r
    mine = tl.load(y, mask=inside, other=0, cache_modifier=".cg").to(tl.int32) & PLAIN
    left, right, up, down = loads_around(field, y, at, across, along, ".cg")
    near = (left.to(tl.int32) & PLAIN, right.to(tl.int32) & PLAIN, up.to(tl.int32) & PLAIN, down.to(tl.int32) & PLAIN)
    weight = weights(field, image.n, at, dtype)
    if N_LABELS == 2:
        ahead = tl.load(drawn.scores + at.number + j * image.items, mask=inside, other=0.0) + lead(near, weight)
        label = tl.where(ahead > 0, 1, tl.where(ahead < 0, 0, mine))
    else:
        firsts = drawn.firsts.to(tl.pointer_type(kept), bitcast=True)
        ticks = drawn.ticks.to(tl.pointer_type(tl.uint8), bitcast=True)
        earliest = tl.load(firsts + pair, mask=inside, other=0).to(tl.int32)
        tick = tl.load(ticks + pair, mask=inside, other=0).to(tl.int32)
        number, sample, site = keys_of(image, at, PACK)
        key = (image.draw, number, sample + j, site)
        log_p = image.terms.log_p + at.site.to(tl.int64) * N_LABELS
        label = contest(key, earliest, tick, mine, near, weight, log_p, inside, image.scale, N_LABELS, SIZES.room)
    tl.store(y, label.to(kept), mask=inside)
    moved = inside & (label != mine)
    if tl.max(moved.to(tl.int32)) > 0:
        note = image.changed + r
        real = moved & (r < image.n_samples)
        stale = real & (tl.load(note, mask=real, other=sweep) < sweep)
        tl.store(note, sweep + tl.zeros([BLOCK], tl.int32), mask=stale)
        if pushing:
            push(queue_ptr, waiting_ptr, field, labels_ptr, at, r, moved, PACK)


@triton.jit
def push(queue_ptr, waiting_ptr, field, labels_ptr, at, r, moved, PACK: tl.constexpr):
    """Mark the neighbours of pairs whose label changed, and append those without a mark to the queue."""
    BITS: tl.constexpr = labels_ptr.dtype.element_ty.primitive_bitwidth
    IN_WORD: tl.constexpr = 32 // BITS
    words_ptr = labels_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    y = at.site.to(tl.int64) * field.site_apart * PACK + r
    bit = tl.full(r.shape, 1, tl.int32) << (r % IN_WORD * BITS + BITS - 1)
    many = tl.zeros(r.shape, tl.int32)
    which = tl.zeros(r.shape, tl.int32)
    for side in tl.static_range(4):
        row, column = _beside(at, side)
        there = moved & (row >= 0) & (row < field.height) & (column >= 0) & (column < field.width)
        far = ((row - at.row) * field.width + column - at.column).to(tl.int64) * field.site_apart * PACK
        old = tl.atomic_or(words_ptr + (y + far) // IN_WORD, bit, mask=there, sem="relaxed")
        fresh = (there & ((old & bit) == 0)).to(tl.int32)
        which |= fresh << side
        many += fresh
    total = tl.sum(many)
    if total > 0:
        place = queue_ptr + tl.atomic_add(waiting_ptr, total, sem="relaxed") + tl.cumsum(many, axis=0) - many
        for side in tl.static_range(4):
            row, column = _beside(at, side)
            number = (row * ((field.width + 1) // 2) + column // 2) * field.n_words + at.word
            tl.store(place, number * PACK + r % PACK, mask=(which >> side) & 1 != 0)
            place += (which >> side) & 1


@triton.jit
def _beside(at, SIDE: tl.constexpr):
    """Return row and column of the neighbour to the left, right, above or below."""
    row = at.row + (SIDE == 3) - (SIDE == 2)
    column = at.column + (SIDE == 1) - (SIDE == 0)
    return row, column


@triton.jit(noinline=True)
def clear_marks(image, list_ptr, first, count, colour, SIZES: tl.constexpr):
    """Clear the marks of queued pairs that will not be visited."""
    PACK: tl.constexpr = SIZES.pack
    field, labels_ptr = image.field, image.labels
    kept: tl.constexpr = labels_ptr.dtype.element_ty
    PLAIN: tl.constexpr = 127 if kept == tl.uint8 else 32767
    entry = first + tl.arange(0, SIZES.visit)
    inside = entry < count
    pair = tl.load(list_ptr + entry, mask=inside, other=0, cache_modifier=".cg")
    at = lanes_at(field, pair // PACK, inside, colour)
    y = labels_ptr + (at.site.to(tl.int64) * field.site_apart + at.word) * PACK + pair % PACK
    tl.store(y, tl.load(y, mask=inside, other=0, cache_modifier=".cg") & PLAIN, mask=inside)
