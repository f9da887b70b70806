"""Later visits of the Potts climb: lists of the pairs (a lane and a sample of its word) to visit, and their updates.

Pairs whose label a change may affect wait in a queue.  While a pair is queued, the top bit of its label's field, its
mark, is set.  So no pair is queued twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

from locpmap.kernels.triton.climb.potts_contest import contest
from locpmap.kernels.triton.climb.potts_first import append
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
