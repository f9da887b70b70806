"""The best labels of rows or columns of a grid with Potts weights, by dynamic programming.

The backward pass goes from a line's end to its start, and the traceback from its start to its end.  *Before* and
*after* mean towards the start and towards the end.

The backward pass computes scores v of a site's labels, including the best labels of all sites after it.  They are
relative to their maximum: v <= 0, so single precision suffices for lines of any length.  Given label k of the site
before and the weight w between them, a site takes k too (v[k] + w) or its best label (0).  If w < 0 and k is the best
label, it may take the second best instead.  A *choice*, one word per site, stores these decisions for all k.  A site
that takes its best label whatever k is, as most do, is a *wall*: see `line_parts`.

Functions take blocks (1, ITEMS) of samples.  Scores are split by label into parts: several blocks (PART, ITEMS).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

LAST_TURN = tl.constexpr(255)  # later turns are stored as this one


class Kind(NamedTuple):
    """The compile-time constants of a climb by lines."""

    attractive: bool  # no weight is negative
    ties: bool  # the smallest of several best labels wins
    by_parts: bool  # walls and turns are stored, for updates in parts
    whole: bool  # whether this update is of whole lines
    rounding: float  # relative gains up to this do not count
    n_labels: int
    part: int  # labels per part
    items: int  # samples
    ahead: int  # sites loaded together in the backward pass
    back: int  # sites loaded together in the traceback


class Line(NamedTuple):
    """A row or column."""

    number: Any
    n_lines: Any
    length: Any
    apart: Any  # stride between lines, in sites
    step: Any  # stride between consecutive sites of a line
    stamps: Any  # index of the first stamp of these lines: rows first, then columns
    crossing: Any  # index of the first stamp of the crossing lines
    n_samples: Any


class Near(NamedTuple):
    """Weights of edges inside lines, and of edges between neighbouring lines."""

    along: Any
    along_line: Any  # stride between lines
    along_step: Any  # stride between sites
    beside: Any
    beside_line: Any
    beside_step: Any


class Site(NamedTuple):
    """Pointers (1, ITEMS) to the data of a line's first site, and (PART, ITEMS) to the scores of its first part."""

    scores: Any
    labels: Any
    turns: Any  # the turn (see `climb_lines`) that last changed the label, at most LAST_TURN
    walls: Any  # of lines in this direction: 1 + the label of a wall, 0 elsewhere
    real: Any  # which samples exist


class Notes(NamedTuple):
    """A program's scratch for its current line, ITEMS numbers per place; all but ``choices`` are for `line_parts`."""

    choices: Any
    words: Any  # bits of the sites to update
    following: Any  # index of the next word that is not 0
    runs: Any  # int64: first place of a run + 2^32 · the place after its last


@triton.constexpr_function
def index_bits(n_labels: int) -> int:
    """Return the bits of a label's index; a choice holds one bit per label and two indices."""
    return (n_labels - 1).bit_length()


@triton.constexpr_function
def n_parts(n_labels: int, part: int) -> int:
    """Return the number of parts of ``part`` labels each."""
    return -(-n_labels // part)


@triton.jit
def labels_of(WHICH: tl.constexpr, PART: tl.constexpr):
    """Return the labels of a part, (PART, 1)."""
    return WHICH * PART + tl.arange(0, PART)[:, None]


@triton.jit
def has_changed(stamp, line, real, before):
    """Return in which ``real`` samples the line or an adjacent line changed after turn ``before``.

    ``stamp`` (1, ITEMS) points to the turn that last changed the first row in a sample.
    """
    n_samples = line.n_samples
    stamp += (line.stamps + line.number) * n_samples
    latest = tl.load(stamp, mask=real, other=0, cache_modifier=".cg")
    up, down = real & (line.number > 0), real & (line.number + 1 < line.n_lines)
    latest = tl.maximum(latest, tl.load(stamp - n_samples, mask=up, other=0, cache_modifier=".cg"))
    latest = tl.maximum(latest, tl.load(stamp + n_samples, mask=down, other=0, cache_modifier=".cg"))
    return real & (latest > before)


@triton.jit
def best_labels(site, near, choices, line, KIND: tl.constexpr):
    """Store the choices of a line; return in which samples it can be improved by more than rounding, (1, ITEMS)."""
    AHEAD: tl.constexpr = KIND.ahead
    ITEMS: tl.constexpr = KIND.items
    PART: tl.constexpr = KIND.part
    dtype: tl.constexpr = site.scores.dtype.element_ty
    none = tl.zeros([1, ITEMS], dtype)
    nothing = ()
    for _ in tl.static_range(n_parts(KIND.n_labels, PART)):
        nothing += (tl.zeros([PART, ITEMS], dtype),)
    # State: the message from the site after; the score of the current labels from there on, relative to the best; the
    # current label there; the scores of equal and different labels on the edge between; the largest absolute score.
    nobody, zero = none.to(tl.int32), tl.zeros([], dtype)
    passed = (nothing, none, nobody, zero, zero, none)
    # A batch is loaded while the previous one is processed.  The first batch is blank and changes nothing, so these
    # loads occur only once in the code: each occurrence takes long to compile.
    batch = ()
    for _ in tl.static_range(AHEAD):
        batch += ((nothing, nobody, nobody, nobody, zero, zero, zero),)
    t = line.length - 1 + AHEAD
    while t >= AHEAD - 1:
        coming = read_batch(site, near, line, t - AHEAD, KIND)
        for which in tl.static_range(AHEAD):
            passed, best, wall = choose(batch[which], passed, choices, t - which, KIND)
            if KIND.by_parts:
                note_walls(site, line, t - which, wall, best, site.real & (t - which < line.length))
        batch = coming
        t -= AHEAD
    while t >= 0:
        passed, best, wall = choose(_read(site, near, line, t, KIND), passed, choices, t, KIND)
        if KIND.by_parts:
            note_walls(site, line, t, wall, best, site.real)
        t -= 1
    return -passed[1] > KIND.rounding * (1 + passed[5])


@triton.jit
def read_batch(site, near, line, t, KIND: tl.constexpr):
    """Load the data of sites t, t - 1, ...; the loads complete while the previous batch is processed."""
    AHEAD: tl.constexpr = KIND.ahead
    batch = ()
    for which in tl.static_range(AHEAD):
        batch += (_read(site, near, line, t - which, KIND),)
    tl.debug_barrier()  # keeps the compiler from delaying the loads
    return batch


@triton.jit
def _read(site, near, line, t, KIND: tl.constexpr):
    """Load scores, labels here and in the previous and next line, and weights of site t of a line.

    Beyond the line's start, load the data of its first site, which are not used.
    """
    N_LABELS: tl.constexpr = KIND.n_labels
    PART: tl.constexpr = KIND.part
    ITEMS: tl.constexpr = KIND.items
    t = tl.maximum(t, 0)
    first, last = line.number > 0, line.number + 1 < line.n_lines
    # Strides have 32 bits, so that a product with them is one instruction.
    scores_ptr = site.scores + t.to(tl.int64) * (line.step * N_LABELS * ITEMS)
    scores = ()
    for part in tl.static_range(n_parts(N_LABELS, PART)):
        if (part + 1) * PART > N_LABELS:
            is_label = labels_of(part, PART) < N_LABELS
            none = tl.where(is_label, 0.0, float("-inf")) + tl.zeros([PART, ITEMS], site.scores.dtype.element_ty)
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real & is_label, other=none),)
        else:
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real),)
    place, apart = t.to(tl.int64) * (line.step * line.n_samples), line.apart * line.n_samples
    here = tl.load(site.labels + place, mask=site.real, cache_modifier=".cg").to(tl.int32)
    place_before, place_after = place - tl.where(first, apart, 0), place + tl.where(last, apart, 0)
    before = tl.load(site.labels + place_before, mask=site.real, cache_modifier=".cg").to(tl.int32)
    after = tl.load(site.labels + place_after, mask=site.real, cache_modifier=".cg").to(tl.int32)
    beside = near.beside + line.number * near.beside_line + t * near.beside_step
    w_before = tl.load(beside - near.beside_line, mask=first, other=0.0)
    w_after = tl.load(beside, mask=last, other=0.0)
    w_start = tl.load(near.along + line.number * near.along_line + (t - 1) * near.along_step, mask=t > 0, other=0.0)
    return scores, here, before, after, w_before, w_after, w_start


@triton.jit
def choose(now, passed, choices, t, KIND: tl.constexpr):
    """Update the backward pass at site t and store its decisions in ``choices``.

    Return the state for the next site, the best label of t, and whether t is a wall.
    """
    N_LABELS: tl.constexpr = KIND.n_labels
    PART: tl.constexpr = KIND.part
    ITEMS: tl.constexpr = KIND.items
    scores, here, before, after, w_before, w_after, w_start = now
    message, deficit, label_after, equal, different, size = passed
    dtype: tl.constexpr = scores[0].dtype
    word: tl.constexpr = choices.dtype.element_ty
    PARTS: tl.constexpr = n_parts(N_LABELS, PART)
    INDEX: tl.constexpr = index_bits(N_LABELS)
    mine, top = tl.zeros([PART, ITEMS], dtype), tl.full([PART, ITEMS], float("-inf"), dtype)
    v = ()
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        own = tl.where(k == before, scores[part] + w_before, scores[part])
        own = tl.where(k == after, own + w_after, own)
        mine = tl.where(k == here, own, mine)
        v += (own + message[part],)
        top = tl.maximum(top, v[part])
    # Reduce over parts first: reducing over lanes takes longer.
    mine, top = tl.sum(mine, axis=0, keep_dims=True), tl.max(top, axis=0, keep_dims=True)
    deficit = mine + (deficit + tl.where(here == label_after, equal, different)) - top
    size = tl.maximum(size, tl.abs(top))
    equal, different = of_edge(w_start, KIND.attractive)
    best = tl.full([PART, ITEMS], N_LABELS, tl.int32)
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        best = tl.minimum(best, tl.where(v[part] == top, k, N_LABELS))
    best = tl.min(best, axis=0, keep_dims=True)
    runner_up, second = best, tl.zeros([1, ITEMS], dtype)
    if not KIND.attractive:
        rest = tl.full([PART, ITEMS], float("-inf"), dtype)
        for part in tl.static_range(PARTS):
            k = labels_of(part, PART)
            rest = tl.maximum(rest, tl.where(k == best, float("-inf"), v[part]))
        second = tl.max(rest, axis=0, keep_dims=True)
        runner_up = tl.full([PART, ITEMS], N_LABELS, tl.int32)
        for part in tl.static_range(PARTS):
            k = labels_of(part, PART)
            runner_up = tl.minimum(runner_up, tl.where((v[part] == second) & (k != best), k, N_LABELS))
        runner_up = tl.min(runner_up, axis=0, keep_dims=True)
        second -= top
    choice = tl.zeros([PART, ITEMS], word)
    sends = ()
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        stay, leave, other = v[part] - top, different, best
        if not KIND.attractive:
            stay += equal
            leave, other = different + tl.where(k == best, second, 0.0), tl.where(k == best, runner_up, best)
        sends += (tl.maximum(stay, leave),)
        stays = stay > leave
        if KIND.ties:
            stays = stays | ((stay == leave) & (k < other))
        choice |= tl.where(stays, tl.full([1, 1], 1, word) << k.to(word), 0)
    choice = tl.sum(choice, axis=0, keep_dims=True).to(word)
    at_best = tl.full([1, 1], 1, word) << best.to(word)
    if KIND.attractive:
        wall = (choice & ~at_best) == 0
    else:
        wall = choice == at_best
    choice = choice | (best.to(word) << N_LABELS) | (runner_up.to(word) << (N_LABELS + INDEX))
    tl.store(choices + t * ITEMS + tl.arange(0, ITEMS)[None, :], choice)
    return (sends, deficit, here, equal, different, size), best, wall


@triton.jit
def of_edge(w, ATTRACTIVE: tl.constexpr):
    """Return the scores of equal and of different labels on an edge, minus the larger of the two."""
    if ATTRACTIVE:
        return tl.zeros_like(w), -w
    else:
        return tl.minimum(w, 0.0), -tl.maximum(w, 0.0)


@triton.jit
def note_walls(site, line, t, wall, best, where):
    """Store whether site t of a line is a wall, and its label, in the samples ``where``."""
    place = site.walls + t.to(tl.int64) * (line.step * line.n_samples)
    tl.store(place, tl.where(wall, best + 1, 0).to(tl.uint8), mask=where)


@triton.jit
def trace(site, choices, stamp, turn, line, real, KIND: tl.constexpr):
    """Set the best labels of a line in the samples ``real``, from the choices that `best_labels` stored.

    Stamp this line with the turn, and the crossing lines at sites that change.
    """
    BACK: tl.constexpr = KIND.back
    ITEMS: tl.constexpr = KIND.items
    stamp_line(stamp, turn, line, real, ITEMS)
    stamp += line.crossing * line.n_samples
    choices += tl.arange(0, ITEMS)[None, :]
    label = tl.zeros([1, ITEMS], tl.int32)  # label before the first site: has no effect
    batch = ()
    for _ in tl.static_range(BACK):
        batch += ((tl.zeros([1, ITEMS], choices.dtype.element_ty), label),)  # blank: label 0 stays 0
    t = tl.full([], -BACK, tl.int32)
    while t < line.length:
        coming = recall(site, choices, line, t + BACK, KIND)
        for which in tl.static_range(BACK):
            choice, old = batch[which]
            label = follow(choice, label, KIND.n_labels)
            changes = real & (label != old) & (t + which < line.length)
            change(site, stamp, turn, line, t + which, label, changes, KIND.by_parts)
        batch = coming
        t += BACK


@triton.jit
def stamp_line(stamp, turn, line, real, ITEMS: tl.constexpr):
    """Store the turn in which a line changed, in the samples ``real``."""
    tl.store(stamp + (line.stamps + line.number) * line.n_samples, tl.zeros([1, ITEMS], tl.int32) + turn, mask=real)


@triton.jit
def follow(choice, label, N_LABELS: tl.constexpr):
    """Return the label that a choice assigns to its site, given the label of the site before."""
    INDEX: tl.constexpr = index_bits(N_LABELS)
    LAST: tl.constexpr = (1 << INDEX) - 1
    best, runner_up = (choice >> N_LABELS) & LAST, (choice >> (N_LABELS + INDEX)) & LAST
    stays = (choice >> label.to(choice.dtype)) & 1
    return tl.where(stays > 0, label, tl.where(label == best, runner_up, best).to(tl.int32))


@triton.jit
def change(site, stamp, turn, line, t, label, where, BY_PARTS: tl.constexpr):
    """Store the new label of site t of a line, and the turn for this site and the crossing line."""
    place = t.to(tl.int64) * (line.step * line.n_samples)
    now = tl.zeros_like(label) + turn
    tl.store(site.labels + place, label.to(site.labels.dtype.element_ty), mask=where)
    if BY_PARTS:
        tl.store(site.turns + place, tl.minimum(now, LAST_TURN).to(tl.uint8), mask=where)
    tl.store(stamp + t * line.n_samples, now, mask=where)


@triton.jit
def recall(site, choices, line, t, KIND: tl.constexpr):
    """Load the choices and current labels of sites t, t + 1, ..., clipped to the line's first and last site."""
    BACK: tl.constexpr = KIND.back
    batch = ()
    for which in tl.static_range(BACK):
        at = tl.maximum(tl.minimum(t + which, line.length - 1), 0)
        place = site.labels + at.to(tl.int64) * (line.step * line.n_samples)
        old = tl.load(place, mask=site.real, cache_modifier=".cg").to(tl.int32)
        batch += ((tl.load(choices + at * KIND.items), old),)
    tl.debug_barrier()
    return batch
