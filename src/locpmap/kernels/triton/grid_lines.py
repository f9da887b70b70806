"""The best labels of rows or columns of a grid with Potts weights: from the line's end back, then on from its start.

Scores of the labels at a site, with the best of all sites behind it, are kept less their maximum: v <= 0, so that
single precision lasts for any length.  Where the site before has label k, at weight w, this one takes k too (v[k] + w)
or its own best label, the crest (0), or, for w < 0 and k the crest, the runner-up.  A word per site notes which.
A site that takes its crest whatever k is, as most do, is a wall: see `line_parts`.

Functions take blocks (1, ITEMS) of samples; scores are several blocks (PART, ITEMS), part after part of the labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

LAST_TURN = tl.constexpr(255)  # that is told from those after it


class Lines(NamedTuple):
    """Rows or columns."""

    n_lines: Any
    length: Any
    line: Any  # sites from one line to the next
    step: Any  # sites from one of a line to the next
    stamps: Any  # where the stamps of these lines begin: those of rows come first, then those of columns
    crossing: Any  # where those of the lines across begin


class Near(NamedTuple):
    """Weights of edges inside lines, and of those to the lines beside them."""

    along: Any
    along_line: Any  # from one line's weights to the next's
    along_step: Any
    beside: Any
    beside_line: Any
    beside_step: Any


class Site(NamedTuple):
    """What is kept of a line's first site: pointers (1, ITEMS), but for its first scores (PART, ITEMS)."""

    scores: Any
    labels: Any
    turns: Any  # in which the label last changed, at most LAST_TURN
    walls: Any  # as these lines run: 1 more than the label of which it is one, else 0
    real: Any  # which samples exist


@triton.constexpr_function
def index_bits(n_labels: int) -> int:
    """Bits of a label's number: a choice holds a bit for every label, and two such numbers."""
    return (n_labels - 1).bit_length()


@triton.constexpr_function
def n_parts(n_labels: int, part: int) -> int:
    """Parts of so many labels that hold all."""
    return -(-n_labels // part)


@triton.jit
def labels_of(WHICH: tl.constexpr, PART: tl.constexpr):
    """The labels of a part, (PART, 1)."""
    return WHICH * PART + tl.arange(0, PART)[:, None]


@triton.jit
def is_open(stamp, lines, line, real, before, n_samples):
    """Where a site of a line, or of one beside it, has changed after turn ``before``, of the samples that are ``real``.

    ``stamp`` (1, ITEMS) points at the turn in which the first row last changed in a sample.
    """
    stamp += (lines.stamps + line) * n_samples
    latest = tl.load(stamp, mask=real, other=0, cache_modifier=".cg")
    up, down = real & (line > 0), real & (line + 1 < lines.n_lines)
    latest = tl.maximum(latest, tl.load(stamp - n_samples, mask=up, other=0, cache_modifier=".cg"))
    latest = tl.maximum(latest, tl.load(stamp + n_samples, mask=down, other=0, cache_modifier=".cg"))
    return real & (latest > before)


@triton.jit
def best_labels(
    site,
    near,
    choices_ptr,
    lines,
    line,
    n_samples,
    ATTRACTIVE: tl.constexpr,
    TIES: tl.constexpr,
    NOTES: tl.constexpr,
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Note the choices of a line; returns in which samples it can be improved by more than rounding, (1, ITEMS).

    ATTRACTIVE says that no weight is below 0, TIES that of equal scores the smallest label shall win, and NOTES that
    walls are noted.
    """
    dtype: tl.constexpr = site.scores.dtype.element_ty
    none = tl.zeros([1, ITEMS], dtype)
    nothing = ()
    for _ in tl.static_range(n_parts(N_LABELS, PART)):
        nothing += (tl.zeros([PART, ITEMS], dtype),)
    # The scores v of the site after, as seen from here; what the current labels from there on lack; the first of them;
    # what equal and what different labels add here; how large scores are.
    nobody, zero = none.to(tl.int32), tl.zeros([], dtype)
    passed = (nothing, none, nobody, zero, zero, none)
    # A batch is read while the one before is worked on.  The first comes after a blank one, which changes nothing: so
    # these loads stand once, and the compiler takes long over each.
    batch = ()
    for _ in tl.static_range(AHEAD):
        batch += ((nothing, nobody, nobody, nobody, zero, zero, zero),)
    t = lines.length - 1 + AHEAD
    while t >= AHEAD - 1:
        coming = read_batch(site, near, lines, line, t - AHEAD, n_samples, N_LABELS, PART, ITEMS, AHEAD)
        for which in tl.static_range(AHEAD):
            passed, crest, wall = choose(
                batch[which], passed, choices_ptr, t - which, ATTRACTIVE, TIES, N_LABELS, PART, ITEMS
            )
            if NOTES:
                note_walls(site, lines, t - which, n_samples, wall, crest, site.real & (t - which < lines.length))
        batch = coming
        t -= AHEAD
    while t >= 0:
        now = _read(site, near, lines, line, t, n_samples, N_LABELS, PART, ITEMS)
        passed, crest, wall = choose(now, passed, choices_ptr, t, ATTRACTIVE, TIES, N_LABELS, PART, ITEMS)
        if NOTES:
            note_walls(site, lines, t, n_samples, wall, crest, site.real)
        t -= 1
    return -passed[1] > ROUNDING * (1 + passed[5])


@triton.jit
def read_batch(
    site,
    near,
    lines,
    line,
    t,
    n_samples,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """What is known of sites t, t - 1, ... of a line.  Nothing waits for these loads before their batch comes up."""
    batch = ()
    for which in tl.static_range(AHEAD):
        batch += (_read(site, near, lines, line, t - which, n_samples, N_LABELS, PART, ITEMS),)
    tl.debug_barrier()  # or the compiler would put the loads off
    return batch


@triton.jit
def _read(site, near, lines, line, t, n_samples, N_LABELS: tl.constexpr, PART: tl.constexpr, ITEMS: tl.constexpr):
    """What is known of site t of a line: scores, labels here and in the lines before and after, weights.

    Before the line's start that of its first site, to no use.
    """
    t = tl.maximum(t, 0)
    first, last = line > 0, line + 1 < lines.n_lines
    # Steps in 32 bits, so that products with them take one instruction.
    scores_ptr = site.scores + t.to(tl.int64) * (lines.step * N_LABELS * ITEMS)
    scores = ()
    for part in tl.static_range(n_parts(N_LABELS, PART)):
        if (part + 1) * PART > N_LABELS:
            is_label = labels_of(part, PART) < N_LABELS
            none = tl.where(is_label, 0.0, float("-inf")) + tl.zeros([PART, ITEMS], site.scores.dtype.element_ty)
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real & is_label, other=none),)
        else:
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real),)
    place, apart = t.to(tl.int64) * (lines.step * n_samples), lines.line * n_samples
    here = tl.load(site.labels + place, mask=site.real, cache_modifier=".cg").to(tl.int32)
    place_before, place_after = place - tl.where(first, apart, 0), place + tl.where(last, apart, 0)
    before = tl.load(site.labels + place_before, mask=site.real, cache_modifier=".cg").to(tl.int32)
    after = tl.load(site.labels + place_after, mask=site.real, cache_modifier=".cg").to(tl.int32)
    beside = near.beside + line * near.beside_line + t * near.beside_step
    w_before = tl.load(beside - near.beside_line, mask=first, other=0.0)
    w_after = tl.load(beside, mask=last, other=0.0)
    w_start = tl.load(near.along + line * near.along_line + (t - 1) * near.along_step, mask=t > 0, other=0.0)
    return scores, here, before, after, w_before, w_after, w_start


@triton.jit
def choose(
    now,
    passed,
    choices_ptr,
    t,
    ATTRACTIVE: tl.constexpr,
    TIES: tl.constexpr,
    N_LABELS: tl.constexpr,
    PART: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """One site on: note its choices; returns what to pass, the crest, and whether the site is a wall."""
    scores, here, before, after, w_before, w_after, w_start = now
    sent, lack, label_after, equal, different, size = passed
    dtype: tl.constexpr = scores[0].dtype
    word: tl.constexpr = choices_ptr.dtype.element_ty
    PARTS: tl.constexpr = n_parts(N_LABELS, PART)
    INDEX: tl.constexpr = index_bits(N_LABELS)
    mine, top = tl.zeros([PART, ITEMS], dtype), tl.full([PART, ITEMS], float("-inf"), dtype)
    v = ()
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        own = tl.where(k == before, scores[part] + w_before, scores[part])
        own = tl.where(k == after, own + w_after, own)
        mine = tl.where(k == here, own, mine)
        v += (own + sent[part],)
        top = tl.maximum(top, v[part])
    # Parts are put together before lanes are, which takes longer.
    mine, top = tl.sum(mine, axis=0, keep_dims=True), tl.max(top, axis=0, keep_dims=True)
    lack = mine + (lack + tl.where(here == label_after, equal, different)) - top
    size = tl.maximum(size, tl.abs(top))
    equal, different = of_edge(w_start, ATTRACTIVE)
    crest = tl.full([PART, ITEMS], N_LABELS, tl.int32)
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        crest = tl.minimum(crest, tl.where(v[part] == top, k, N_LABELS))
    crest = tl.min(crest, axis=0, keep_dims=True)
    runner, second = crest, tl.zeros([1, ITEMS], dtype)
    if not ATTRACTIVE:
        rest = tl.full([PART, ITEMS], float("-inf"), dtype)
        for part in tl.static_range(PARTS):
            k = labels_of(part, PART)
            rest = tl.maximum(rest, tl.where(k == crest, float("-inf"), v[part]))
        second = tl.max(rest, axis=0, keep_dims=True)
        runner = tl.full([PART, ITEMS], N_LABELS, tl.int32)
        for part in tl.static_range(PARTS):
            k = labels_of(part, PART)
            runner = tl.minimum(runner, tl.where((v[part] == second) & (k != crest), k, N_LABELS))
        runner = tl.min(runner, axis=0, keep_dims=True)
        second -= top
    choice = tl.zeros([PART, ITEMS], word)
    sends = ()
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        stay, leave, other = v[part] - top, different, crest
        if not ATTRACTIVE:
            stay += equal
            leave, other = different + tl.where(k == crest, second, 0.0), tl.where(k == crest, runner, crest)
        sends += (tl.maximum(stay, leave),)
        stays = stay > leave
        if TIES:
            stays = stays | ((stay == leave) & (k < other))
        choice |= tl.where(stays, tl.full([1, 1], 1, word) << k.to(word), 0)
    choice = tl.sum(choice, axis=0, keep_dims=True).to(word)
    at_crest = tl.full([1, 1], 1, word) << crest.to(word)
    if ATTRACTIVE:
        wall = (choice & ~at_crest) == 0
    else:
        wall = choice == at_crest
    choice = choice | (crest.to(word) << N_LABELS) | (runner.to(word) << (N_LABELS + INDEX))
    tl.store(choices_ptr + t * ITEMS + tl.arange(0, ITEMS)[None, :], choice)
    return (sends, lack, here, equal, different, size), crest, wall


@triton.jit
def of_edge(w, ATTRACTIVE: tl.constexpr):
    """What equal and what different labels at the ends of an edge add, less the larger of the two."""
    if ATTRACTIVE:
        return tl.zeros_like(w), -w
    else:
        return tl.minimum(w, 0.0), -tl.maximum(w, 0.0)


@triton.jit
def note_walls(site, lines, t, n_samples, wall, crest, where):
    """Of which label site t of a line is a wall, in these samples."""
    place = site.walls + t.to(tl.int64) * (lines.step * n_samples)
    tl.store(place, tl.where(wall, crest + 1, 0).to(tl.uint8), mask=where)


@triton.jit
def trace(
    site,
    choices_ptr,
    stamp,
    turn,
    lines,
    line,
    real,
    n_samples,
    NOTES: tl.constexpr,
    N_LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Store the best labels of a line in the samples that are ``real``, by the choices that `best_labels` noted.

    Stamps this line and those across at the sites that change.
    """
    stamp_line(stamp, turn, lines, line, real, n_samples, ITEMS)
    stamp += lines.crossing * n_samples
    choices_ptr += tl.arange(0, ITEMS)[None, :]
    label = tl.zeros([1, ITEMS], tl.int32)  # before the first site, where nothing depends on it
    batch = ()
    for _ in tl.static_range(AHEAD):
        batch += ((tl.zeros([1, ITEMS], choices_ptr.dtype.element_ty), label),)  # blank: label 0 stays as it is
    t = tl.full([], -AHEAD, tl.int32)
    while t < lines.length:
        coming = recall(site, choices_ptr, lines, t + AHEAD, n_samples, ITEMS, AHEAD)
        for which in tl.static_range(AHEAD):
            choice, old = batch[which]
            label = follow(choice, label, N_LABELS)
            changes = real & (label != old) & (t + which < lines.length)
            change(site, stamp, turn, lines, t + which, label, changes, n_samples, NOTES)
        batch = coming
        t += AHEAD


@triton.jit
def stamp_line(stamp, turn, lines, line, real, n_samples, ITEMS: tl.constexpr):
    """Note the turn in which a line changed, in the samples that are ``real``."""
    tl.store(stamp + (lines.stamps + line) * n_samples, tl.zeros([1, ITEMS], tl.int32) + turn, mask=real)


@triton.jit
def follow(choice, label, N_LABELS: tl.constexpr):
    """The label that a site takes after this one."""
    INDEX: tl.constexpr = index_bits(N_LABELS)
    LAST: tl.constexpr = (1 << INDEX) - 1
    crest, runner = (choice >> N_LABELS) & LAST, (choice >> (N_LABELS + INDEX)) & LAST
    stays = (choice >> label.to(choice.dtype)) & 1
    return tl.where(stays > 0, label, tl.where(label == crest, runner, crest).to(tl.int32))


@triton.jit
def change(site, stamp, turn, lines, t, label, where, n_samples, NOTES: tl.constexpr):
    """Store the label of site t of a line, and the turn, here and for the line across."""
    place = t.to(tl.int64) * (lines.step * n_samples)
    now = tl.zeros_like(label) + turn
    tl.store(site.labels + place, label.to(site.labels.dtype.element_ty), mask=where)
    if NOTES:
        tl.store(site.turns + place, tl.minimum(now, LAST_TURN).to(tl.uint8), mask=where)
    tl.store(stamp + t * n_samples, now, mask=where)


@triton.jit
def recall(site, choices_ptr, lines, t, n_samples, ITEMS: tl.constexpr, AHEAD: tl.constexpr):
    """The choices noted at sites t, t + 1, ... of a line and their current labels; beyond its ends those of the
    first and last.
    """
    batch = ()
    for which in tl.static_range(AHEAD):
        at = tl.maximum(tl.minimum(t + which, lines.length - 1), 0)
        place = site.labels + at.to(tl.int64) * (lines.step * n_samples)
        old = tl.load(place, mask=site.real, cache_modifier=".cg").to(tl.int32)
        batch += ((tl.load(choices_ptr + at * ITEMS), old),)
    tl.debug_barrier()
    return batch
