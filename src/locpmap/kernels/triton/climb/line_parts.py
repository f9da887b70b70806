"""Updates of only the parts of a line that a change can reach; other labels and messages stay as they are.

A wall is a site that takes its best label whatever the label of the site before it (see `grid_lines`).  The message
from a wall follows from its label alone, so the backward pass starts at the first wall after a change.  It ends at the
first wall before the change whose label is unchanged.  The message from that wall to the site before is unchanged for
that site's current label and did not rise for its other labels.  The sites before the wall therefore keep their labels.
The sites between the two walls are a *run*; most changes reach only a few sites.

A site that has not taken its best label is not treated as a wall: a line keeps its labels if it would gain no more than
rounding.  The tolerance is relative to the scores of the runs alone.

A *turn* is the update of all even or all odd rows or columns in one sweep.  Turns are numbered from 1.

Each sample advances on its own.  Places count from the line's end, in the order of the backward pass.  A word has one
bit for each of 32 places.
"""

from __future__ import annotations

import triton
import triton.language as tl

from locpmap.kernels.triton.climb.grid_lines import (
    LAST_TURN,
    change,
    choose,
    follow,
    labels_of,
    n_parts,
    note_walls,
    of_edge,
    read_batch,
    recall,
    stamp_line,
)

SITES = tl.constexpr(32)  # per word


@triton.jit
def find_parts(site, notes, line, going, before, ITEMS: tl.constexpr):
    """Mark the sites to update in a bit mask, ``notes.words``.

    A site is marked if it or its neighbour in an adjacent line changed after turn number ``before``.  Marks extend to
    the sites after it, up to the next wall.  The mask has two extra words, both 0.
    """
    item, bit = tl.arange(0, ITEMS)[None, :], tl.arange(0, SITES)[:, None]
    since = tl.minimum(before, LAST_TURN - 1)
    up, down, apart = line.number > 0, line.number + 1 < line.n_lines, line.apart * line.n_samples
    word = (line.length + SITES - 1) // SITES
    carry, following = tl.zeros([1, ITEMS], tl.uint32), tl.zeros([1, ITEMS], tl.int32) + word
    tl.store(notes.following + word * ITEMS + item, following)
    tl.store(notes.words + word * ITEMS + item, carry)
    tl.store(notes.words + (word + 1) * ITEMS + item, carry)  # loaded together with the last word
    while word > 0:
        word -= 1
        t = line.length - 1 - word * SITES - bit
        inside = going & (t >= 0)
        place = t.to(tl.int64) * (line.step * line.n_samples)
        turns = site.turns + place
        latest = tl.load(turns, mask=inside, other=0, cache_modifier=".cg")
        latest = tl.maximum(latest, tl.load(turns - apart, mask=inside & up, other=0, cache_modifier=".cg"))
        latest = tl.maximum(latest, tl.load(turns + apart, mask=inside & down, other=0, cache_modifier=".cg"))
        is_open = inside & (latest.to(tl.int32) > since)
        wall = tl.load(site.walls + place, mask=inside, other=1, cache_modifier=".cg").to(tl.int32)
        label = tl.load(site.labels + place, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
        flag = tl.full([1, 1], 1, tl.uint32) << bit.to(tl.uint32)
        parts = tl.sum(tl.where(is_open, flag, 0), axis=0, keep_dims=True)
        through = tl.sum(tl.where(wall == label + 1, 0, flag), axis=0, keep_dims=True)
        # Changes propagate from a site to the one after it, the next lower bit; steps of doubling length do it in 5.
        parts |= through & (carry << (SITES - 1))
        for doubling in tl.static_range(5):
            parts |= through & (parts >> (1 << doubling))
            through &= through >> (1 << doubling)
        tl.store(notes.words + word * ITEMS + item, parts)
        tl.store(notes.following + word * ITEMS + item, following)
        following = tl.where(parts > 0, word, following)
        carry = parts & 1


@triton.jit
def _next_place(notes, line, place, ITEMS: tl.constexpr):
    """Return the first place at or after this one that `find_parts` stored; the line's length if there is none."""
    item = tl.arange(0, ITEMS)[None, :]
    place = tl.minimum(place, line.length)
    word = place // SITES
    bits = tl.load(notes.words + word * ITEMS + item) & (tl.full([1, 1], 2**32 - 1, tl.uint32) << (place % SITES))
    word = tl.where(bits > 0, word, tl.load(notes.following + word * ITEMS + item))
    bits = tl.where(bits > 0, bits, tl.load(notes.words + word * ITEMS + item))
    lowest = (bits & (0 - bits)).to(tl.float32)  # a power of two: its exponent is the index of the bit
    found = word * SITES + (lowest.to(tl.int32, bitcast=True) >> 23) - 127
    return tl.where(bits > 0, found, line.length)


@triton.jit
def best_labels_in_parts(site, near, notes, line, KIND: tl.constexpr):
    """Apply `best_labels` to the parts stored by `find_parts`, and beyond them as far as labels may change.

    Store the runs; return in which samples the line improves, and the number of runs, (1, ITEMS).
    """
    AHEAD: tl.constexpr = KIND.ahead
    ITEMS: tl.constexpr = KIND.items
    PART: tl.constexpr = KIND.part
    PARTS: tl.constexpr = n_parts(KIND.n_labels, PART)
    dtype: tl.constexpr = site.scores.dtype.element_ty
    item = tl.arange(0, ITEMS)[None, :]
    deficit, size = tl.zeros([1, ITEMS], dtype), tl.zeros([1, ITEMS], dtype)
    message = ()
    for _ in tl.static_range(PARTS):
        message += (tl.zeros([PART, ITEMS], dtype),)
    n_runs, begun, under_way = tl.zeros([1, ITEMS], tl.int32), tl.zeros([1, ITEMS], tl.int32), site.real & False
    place = _next_place(notes, line, begun, ITEMS)
    while tl.min(place) < line.length:
        word, t = place // SITES, line.length - 1 - place
        words = notes.words + word * ITEMS + item
        bits = tl.load(words).to(tl.uint64) | (tl.load(words + ITEMS).to(tl.uint64) << SITES)
        bits = (bits >> (place % SITES).to(tl.uint64)).to(tl.uint32)
        batch = read_batch(site, near, line, t, KIND)
        label_after, equal, different = _read_after(site, near, line, t, KIND.attractive)
        for which in tl.static_range(AHEAD):
            is_wanted = ((bits >> which) & 1) > 0
            begins = is_wanted & (under_way == 0)
            received = ()
            for part in tl.static_range(PARTS):
                from_wall = tl.where(labels_of(part, PART) == label_after, equal, different)
                received += (tl.where(begins, from_wall, message[part]),)
            works = (is_wanted | under_way) & (place + which < line.length)
            slot = tl.where(works, t - which, line.length)  # otherwise a slot that is never read
            passed = (received, deficit, label_after, equal, different, size)
            passed, best, wall = choose(batch[which], passed, notes.choices, slot, KIND)
            note_walls(site, line, t - which, wall, best, works & site.real)
            begun = tl.where(begins, place + which, begun)
            ends = works & wall & (is_wanted == 0) & (best == batch[which][1])
            at_start = works & (place + which == line.length - 1)
            end = place + which + tl.where(ends, 0, 1)
            run = begun.to(tl.int64) | (end.to(tl.int64) << 32)
            tl.store(notes.runs + n_runs * ITEMS + item, run, mask=ends | at_start)
            n_runs += (ends | at_start).to(tl.int32)
            under_way = works & (ends == 0) & (at_start == 0)
            message, label_after, equal, different = passed[0], passed[2], passed[3], passed[4]
            deficit, size = tl.where(works, passed[1], deficit), tl.where(works, passed[5], size)
        place = tl.where(under_way, place + AHEAD, _next_place(notes, line, place + AHEAD, ITEMS))
    return -deficit > KIND.rounding * (1 + size), n_runs


@triton.jit
def _read_after(site, near, line, t, ATTRACTIVE: tl.constexpr):
    """Load the label of the site after t, and the scores of equal and different labels on the edge to it."""
    there = (t >= 0) & (t + 1 < line.length)
    at = (t + 1).to(tl.int64) * (line.step * line.n_samples)
    label = tl.load(site.labels + at, mask=site.real & there, other=0, cache_modifier=".cg").to(tl.int32)
    w = tl.load(near.along + line.number * near.along_line + t * near.along_step, mask=there, other=0.0)
    equal, different = of_edge(w, ATTRACTIVE)
    return label, equal, different


@triton.jit
def trace_parts(site, notes, n_runs, stamp, turn, line, real, KIND: tl.constexpr):
    """Apply `trace` to the runs stored by `best_labels_in_parts`, last run first."""
    BACK: tl.constexpr = KIND.back
    ITEMS: tl.constexpr = KIND.items
    stamp_line(stamp, turn, line, real, ITEMS)
    stamp += line.crossing * line.n_samples
    item = tl.arange(0, ITEMS)[None, :]
    choices = notes.choices + item
    left = tl.where(real, n_runs, 0)
    label = tl.zeros([1, ITEMS], tl.int32)
    place, first = label - 1, label
    while tl.max(tl.maximum(left, place - first + 1)) > 0:
        begins = (place < first) & (left > 0)
        left -= begins.to(tl.int32)
        run = tl.load(notes.runs + left * ITEMS + item, mask=begins, other=0)
        end = (run >> 32).to(tl.int32)
        at = (line.length - 1 - end).to(tl.int64) * (line.step * line.n_samples)
        old = tl.load(site.labels + at, mask=begins & (end < line.length), other=0, cache_modifier=".cg").to(tl.int32)
        label = tl.where(begins, old, label)
        place, first = tl.where(begins, end - 1, place), tl.where(begins, run.to(tl.int32), first)
        t = line.length - 1 - place
        batch = recall(site, choices, line, t, KIND)
        for which in tl.static_range(BACK):
            choice, old = batch[which]
            works = place - which >= first
            label = tl.where(works, follow(choice, label, KIND.n_labels), label)
            change(site, stamp, turn, line, t + which, label, real & works & (label != old), True)
        place -= BACK
