"""The parts of a line that changes around it can reach: labels elsewhere, and what is passed there, stay as they are.

Whoever is behind a wall (a site that takes one label whatever the one before it has) is passed the same for good, until
something changes at the wall or after it.  (A line is left as it is where it would gain no more than rounding: a site
that has not taken that label then is no wall.)  So a line is worked through from the first wall after a change to the
first one before it that keeps its label, which those before it go on as they are with: to have another label there has
become worse for them, or is as it was.  Most changes come to an end after a few sites; such a part is a run.
What counts as rounding is judged by the scores of runs alone.

Each sample is at a place of its own.  Places are counted from the line's end, in the order in which sites are worked
through; words have a bit for each of 32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.triton.grid_lines import (
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

SITES = tl.constexpr(32)  # of a word


class Notes(NamedTuple):
    """A program's own memory for the line it is at, ITEMS numbers side by side."""

    words: Any  # which sites to work through; two more than the longest line has
    following: Any  # the next word that is not 0
    runs: Any  # int64: the first place of a run, and 2^32 times the one after its last


@triton.jit
def find_parts(site, notes, lines, line, going, before, n_samples, ITEMS: tl.constexpr):
    """Note where a line has to be worked through: where it or a line beside it changed after turn ``before``, and on
    from there up to the next wall.
    """
    item, bit = tl.arange(0, ITEMS)[None, :], tl.arange(0, SITES)[:, None]
    since = tl.minimum(before, LAST_TURN - 1)
    up, down, apart = line > 0, line + 1 < lines.n_lines, lines.line * n_samples
    word = (lines.length + SITES - 1) // SITES
    carry, following = tl.zeros([1, ITEMS], tl.uint32), tl.zeros([1, ITEMS], tl.int32) + word
    tl.store(notes.following + word * ITEMS + item, following)
    tl.store(notes.words + word * ITEMS + item, carry)
    tl.store(notes.words + (word + 1) * ITEMS + item, carry)  # which is read beside the last word
    while word > 0:
        word -= 1
        t = lines.length - 1 - word * SITES - bit
        inside = going & (t >= 0)
        place = t.to(tl.int64) * (lines.step * n_samples)
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
        # A site is reached from the one before it, whose bit is the next higher: by doubling steps.
        parts |= through & (carry << (SITES - 1))
        for doubling in tl.static_range(5):
            parts |= through & (parts >> (1 << doubling))
            through &= through >> (1 << doubling)
        tl.store(notes.words + word * ITEMS + item, parts)
        tl.store(notes.following + word * ITEMS + item, following)
        following = tl.where(parts > 0, word, following)
        carry = parts & 1


@triton.jit
def _next_place(notes, lines, place, ITEMS: tl.constexpr):
    """The first place from this one on that `find_parts` noted; the line's length where there is none."""
    item = tl.arange(0, ITEMS)[None, :]
    place = tl.minimum(place, lines.length)
    word = place // SITES
    bits = tl.load(notes.words + word * ITEMS + item) & (tl.full([1, 1], 2**32 - 1, tl.uint32) << (place % SITES))
    word = tl.where(bits > 0, word, tl.load(notes.following + word * ITEMS + item))
    bits = tl.where(bits > 0, bits, tl.load(notes.words + word * ITEMS + item))
    lowest = (bits & (0 - bits)).to(tl.float32)  # a power of two, whose exponent is the bit's number
    found = word * SITES + (lowest.to(tl.int32, bitcast=True) >> 23) - 127
    return tl.where(bits > 0, found, lines.length)


@triton.jit
def best_labels_in_parts(
    site,
    near,
    choices_ptr,
    notes,
    lines,
    line,
    n_samples,
    ATTRACTIVE: tl.constexpr,
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """As `best_labels`, in the parts that `find_parts` noted, and as far beyond as others may change for that.

    Notes the runs; returns their number, too, (1, ITEMS).
    """
    dtype: tl.constexpr = site.scores.dtype.element_ty
    item = tl.arange(0, ITEMS)[None, :]
    lack, size = tl.zeros([1, ITEMS], dtype), tl.zeros([1, ITEMS], dtype)
    sent = ()
    for _ in tl.static_range(n_parts(N_LABELS, PART)):
        sent += (tl.zeros([PART, ITEMS], dtype),)
    n_runs, begun, under_way = tl.zeros([1, ITEMS], tl.int32), tl.zeros([1, ITEMS], tl.int32), site.real & False
    place = _next_place(notes, lines, begun, ITEMS)
    while tl.min(place) < lines.length:
        word, t = place // SITES, lines.length - 1 - place
        words = notes.words + word * ITEMS + item
        bits = tl.load(words).to(tl.uint64) | (tl.load(words + ITEMS).to(tl.uint64) << SITES)
        bits = (bits >> (place % SITES).to(tl.uint64)).to(tl.uint32)
        batch = read_batch(site, near, lines, line, t, n_samples, N_LABELS, PART, ITEMS, AHEAD)
        label_after, equal, different = _read_after(site, near, lines, line, t, n_samples, ATTRACTIVE)
        for which in tl.static_range(AHEAD):
            is_wanted = ((bits >> which) & 1) > 0
            begins = is_wanted & (under_way == 0)
            come = ()
            for part in tl.static_range(n_parts(N_LABELS, PART)):
                passed = tl.where(labels_of(part, PART) == label_after, equal, different)  # what a wall passes
                come += (tl.where(begins, passed, sent[part]),)
            works = (is_wanted | under_way) & (place + which < lines.length)
            slot = tl.where(works, t - which, lines.length)  # where nobody looks
            behind = (come, lack, label_after, equal, different, size)
            passes, crest, wall = choose(
                batch[which], behind, choices_ptr, slot, ATTRACTIVE, False, N_LABELS, PART, ITEMS
            )
            note_walls(site, lines, t - which, n_samples, wall, crest, works & site.real)
            begun = tl.where(begins, place + which, begun)
            settles = works & wall & (is_wanted == 0) & (crest == batch[which][1])
            at_start = works & (place + which == lines.length - 1)
            end = place + which + tl.where(settles, 0, 1)
            run = begun.to(tl.int64) | (end.to(tl.int64) << 32)
            tl.store(notes.runs + n_runs * ITEMS + item, run, mask=settles | at_start)
            n_runs += (settles | at_start).to(tl.int32)
            under_way = works & (settles == 0) & (at_start == 0)
            sent, label_after, equal, different = passes[0], passes[2], passes[3], passes[4]
            lack, size = tl.where(works, passes[1], lack), tl.where(works, passes[5], size)
        place = tl.where(under_way, place + AHEAD, _next_place(notes, lines, place + AHEAD, ITEMS))
    return -lack > ROUNDING * (1 + size), n_runs


@triton.jit
def _read_after(site, near, lines, line, t, n_samples, ATTRACTIVE: tl.constexpr):
    """The label of the site after t, and what equal and different ones on the edge between add."""
    there = (t >= 0) & (t + 1 < lines.length)
    at = (t + 1).to(tl.int64) * (lines.step * n_samples)
    label = tl.load(site.labels + at, mask=site.real & there, other=0, cache_modifier=".cg").to(tl.int32)
    w = tl.load(near.along + line * near.along_line + t * near.along_step, mask=there, other=0.0)
    equal, different = of_edge(w, ATTRACTIVE)
    return label, equal, different


@triton.jit
def trace_parts(
    site,
    choices_ptr,
    notes,
    n_runs,
    stamp,
    turn,
    lines,
    line,
    real,
    n_samples,
    N_LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """As `trace`, in the runs that `best_labels_in_parts` noted, the last of them first."""
    stamp_line(stamp, turn, lines, line, real, n_samples, ITEMS)
    stamp += lines.crossing * n_samples
    item = tl.arange(0, ITEMS)[None, :]
    choices_ptr += item
    left = tl.where(real, n_runs, 0)
    label = tl.zeros([1, ITEMS], tl.int32)
    place, first = label - 1, label
    while tl.max(tl.maximum(left, place - first + 1)) > 0:
        comes = (place < first) & (left > 0)
        left -= comes.to(tl.int32)
        run = tl.load(notes.runs + left * ITEMS + item, mask=comes, other=0)
        end = (run >> 32).to(tl.int32)
        at = (lines.length - 1 - end).to(tl.int64) * (lines.step * n_samples)
        old = tl.load(site.labels + at, mask=comes & (end < lines.length), other=0, cache_modifier=".cg").to(tl.int32)
        label = tl.where(comes, old, label)
        place, first = tl.where(comes, end - 1, place), tl.where(comes, run.to(tl.int32), first)
        t = lines.length - 1 - place
        batch = recall(site, choices_ptr, lines, t, n_samples, ITEMS, AHEAD)
        for which in tl.static_range(AHEAD):
            choice, old = batch[which]
            works = place - which >= first
            label = tl.where(works, follow(choice, label, N_LABELS), label)
            change(site, stamp, turn, lines, t + which, label, real & works & (label != old), n_samples, True)
        place -= AHEAD
