"""The best labels of rows or columns of a grid with Potts weights: from the line's end back, then on from its start.

Scores of the labels at a site, with the best of all sites behind it, are kept less their maximum: v <= 0, so that
single precision lasts for any length.  Where the site before has label k, at weight w, this one takes k too (v[k] + w)
or its own best label, the crest (0), or, for w < 0 and k the crest, the runner-up.  A word per site notes which.

A site that takes its crest whatever k is, as most do, is a wall.  A line that was visited before is worked through only
up to the first site before all changes that is a wall and has its crest already: for the sites before it, another label
there has become worse, or is as it was, so that they keep theirs.

Functions take blocks (1, ITEMS) of samples; scores are several blocks (PART, ITEMS), part after part of the labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

LAST_TURN = tl.constexpr(255)  # later turns are not told apart
SITES = tl.constexpr(32)  # at which changes are looked for at a time


class Kind(NamedTuple):
    """What a climb by lines is compiled for: one constant."""

    attractive: bool  # no weight is below 0
    ties: bool  # of equal scores the smallest label shall win
    rounding: float
    n_labels: int
    part: int
    items: int
    ahead: int
    back: int


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
def first_change(site, lines, line, going, before, n_samples, KIND: tl.constexpr):
    """Return the first site of a line at which it or a line beside it changed after turn ``before``, (1, ITEMS)."""
    since = tl.minimum(before, LAST_TURN - 1)
    up, down, apart = line > 0, line + 1 < lines.n_lines, lines.line * n_samples
    found = tl.zeros([1, KIND.items * 1], tl.int32) + lines.length
    first = tl.zeros([], tl.int32)
    while (first < lines.length) & (tl.max(tl.where(going, found, 0)) == lines.length):
        t = first + tl.arange(0, SITES)[:, None]
        inside = going & (t < lines.length)
        turns = site.turns + t.to(tl.int64) * (lines.step * n_samples)
        latest = tl.load(turns, mask=inside, other=0, cache_modifier=".cg")
        latest = tl.maximum(latest, tl.load(turns - apart, mask=inside & up, other=0, cache_modifier=".cg"))
        latest = tl.maximum(latest, tl.load(turns + apart, mask=inside & down, other=0, cache_modifier=".cg"))
        where = tl.where(inside & (latest.to(tl.int32) > since), t, lines.length)
        found = tl.minimum(found, tl.min(where, axis=0, keep_dims=True))
        first += SITES
    return found


@triton.jit
def best_labels(site, near, choices_ptr, lines, line, going, earliest, n_samples, KIND: tl.constexpr):
    """Note the choices of a line, from its end back to a site before ``earliest`` where all samples have settled.

    Returns in which samples the line can be improved by more than rounding, (1, ITEMS), and that site, or -1.
    """
    AHEAD: tl.constexpr = KIND.ahead
    ITEMS: tl.constexpr = KIND.items
    PART: tl.constexpr = KIND.part
    dtype: tl.constexpr = site.scores.dtype.element_ty
    none = tl.zeros([1, ITEMS], dtype)
    nothing = ()
    for _ in tl.static_range(n_parts(KIND.n_labels, PART)):
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
    settled = tl.full([], -1, tl.int32)
    while (t >= AHEAD - 1) & (settled < 0):
        coming = _read_batch(site, near, lines, line, t - AHEAD, n_samples, KIND)
        is_settled = going
        for which in tl.static_range(AHEAD):
            passed, crest, wall = _choose(batch[which], passed, choices_ptr, t - which, KIND)
            is_settled = wall & (crest == batch[which][1]) & (t - which < earliest)
        if not KIND.ties:
            is_open = (going & (is_settled == 0)).to(tl.int32)
            settled = tl.where(tl.max(is_open) > 0, -1, t - AHEAD + 1)
        batch = coming
        t -= AHEAD
    while (t >= 0) & (settled < 0):
        now = _read(site, near, lines, line, t, n_samples, KIND)
        passed, crest, wall = _choose(now, passed, choices_ptr, t, KIND)
        t -= 1
    return -passed[1] > KIND.rounding * (1 + passed[5]), settled


@triton.jit
def _read_batch(site, near, lines, line, t, n_samples, KIND: tl.constexpr):
    """Read what is known of sites t, t - 1, ...  Nothing waits for these loads before their batch is used."""
    batch = ()
    for which in tl.static_range(KIND.ahead * 1):
        batch += (_read(site, near, lines, line, t - which, n_samples, KIND),)
    tl.debug_barrier()  # or the compiler would put the loads off
    return batch


@triton.jit
def _read(site, near, lines, line, t, n_samples, KIND: tl.constexpr):
    """Read what is known of site t of a line: scores, labels here and in the lines before and after, weights.

    Before the line's start that is of its first site, and not used.
    """
    N_LABELS: tl.constexpr = KIND.n_labels
    PART: tl.constexpr = KIND.part
    ITEMS: tl.constexpr = KIND.items
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
def _choose(now, passed, choices_ptr, t, KIND: tl.constexpr):
    """Note the choices of one more site; returns what to pass, the crest, and whether the site is a wall."""
    N_LABELS: tl.constexpr = KIND.n_labels
    PART: tl.constexpr = KIND.part
    ITEMS: tl.constexpr = KIND.items
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
    equal, different = _of_edge(w_start, KIND.attractive)
    crest = tl.full([PART, ITEMS], N_LABELS, tl.int32)
    for part in tl.static_range(PARTS):
        k = labels_of(part, PART)
        crest = tl.minimum(crest, tl.where(v[part] == top, k, N_LABELS))
    crest = tl.min(crest, axis=0, keep_dims=True)
    runner, second = crest, tl.zeros([1, ITEMS], dtype)
    if not KIND.attractive:
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
        if not KIND.attractive:
            stay += equal
            leave, other = different + tl.where(k == crest, second, 0.0), tl.where(k == crest, runner, crest)
        sends += (tl.maximum(stay, leave),)
        stays = stay > leave
        if KIND.ties:
            stays = stays | ((stay == leave) & (k < other))
        choice |= tl.where(stays, tl.full([1, 1], 1, word) << k.to(word), 0)
    choice = tl.sum(choice, axis=0, keep_dims=True).to(word)
    at_crest = tl.full([1, 1], 1, word) << crest.to(word)
    if KIND.attractive:
        wall = (choice & ~at_crest) == 0
    else:
        wall = choice == at_crest
    choice = choice | (crest.to(word) << N_LABELS) | (runner.to(word) << (N_LABELS + INDEX))
    tl.store(choices_ptr + t * ITEMS + tl.arange(0, ITEMS)[None, :], choice)
    return (sends, lack, here, equal, different, size), crest, wall


@triton.jit
def _of_edge(w, ATTRACTIVE: tl.constexpr):
    """What equal and what different labels at the ends of an edge add, less the larger of the two."""
    if ATTRACTIVE:
        return tl.zeros_like(w), -w
    else:
        return tl.minimum(w, 0.0), -tl.maximum(w, 0.0)


@triton.jit
def trace(site, choices_ptr, stamp, turn, lines, line, real, settled, n_samples, KIND: tl.constexpr):
    """Store the best labels of a line after site ``settled``, in the samples that are ``real``, by the noted choices.

    Stamps this line and those across at the sites that change.
    """
    ITEMS: tl.constexpr = KIND.items
    BACK: tl.constexpr = KIND.back
    now = tl.zeros([1, ITEMS], tl.int32) + turn
    tl.store(stamp + (lines.stamps + line) * n_samples, now, mask=real)
    stamp += lines.crossing * n_samples
    choices_ptr += tl.arange(0, ITEMS)[None, :]
    # The label before the first site, on which nothing depends at the line's start.
    before = site.labels + settled.to(tl.int64) * (lines.step * n_samples)
    label = tl.load(before, mask=site.real & (settled >= 0), other=0, cache_modifier=".cg").to(tl.int32)
    batch = ()
    for _ in tl.static_range(BACK):
        batch += ((tl.zeros([1, ITEMS], choices_ptr.dtype.element_ty), label),)  # blank
    t = settled + 1 - BACK
    while t < lines.length:
        coming = _recall(site, choices_ptr, lines, t + BACK, n_samples, KIND)
        for which in tl.static_range(BACK):
            choice, old = batch[which]
            label = tl.where(t + which > settled, _follow(choice, label, KIND.n_labels), label)
            changes = real & (label != old) & (t + which > settled) & (t + which < lines.length)
            place = (t + which).to(tl.int64) * (lines.step * n_samples)
            tl.store(site.labels + place, label.to(site.labels.dtype.element_ty), mask=changes)
            tl.store(site.turns + place, tl.minimum(now, LAST_TURN).to(tl.uint8), mask=changes)
            tl.store(stamp + (t + which) * n_samples, now, mask=changes)
        batch = coming
        t += BACK


@triton.jit
def _follow(choice, label, N_LABELS: tl.constexpr):
    """Return the label that a site takes after this one."""
    INDEX: tl.constexpr = index_bits(N_LABELS)
    LAST: tl.constexpr = (1 << INDEX) - 1
    crest, runner = (choice >> N_LABELS) & LAST, (choice >> (N_LABELS + INDEX)) & LAST
    stays = (choice >> label.to(choice.dtype)) & 1
    return tl.where(stays > 0, label, tl.where(label == crest, runner, crest).to(tl.int32))


@triton.jit
def _recall(site, choices_ptr, lines, t, n_samples, KIND: tl.constexpr):
    """Load the choices noted at sites t, t + 1, ... and their current labels; beyond its end the last."""
    batch = ()
    for which in tl.static_range(KIND.back * 1):
        at = tl.minimum(t + which, lines.length - 1)
        place = site.labels + at.to(tl.int64) * (lines.step * n_samples)
        old = tl.load(place, mask=site.real, cache_modifier=".cg").to(tl.int32)
        batch += ((tl.load(choices_ptr + at * KIND.items), old),)
    tl.debug_barrier()
    return batch
