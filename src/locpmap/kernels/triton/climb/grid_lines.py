"""The best labels of rows or columns of a grid with Potts weights >= 0, by dynamic programming.

The backward pass goes from a line's end to its start, and the traceback from its start to its end.  *Before* and
*after* mean towards the start and towards the end.

The backward pass computes scores v of a site's labels, including the best labels of all sites after it.  They are
relative to their maximum: v <= 0, so single precision suffices for lines of any length.  Given label k of the site
before and the weight w between them, a site takes k too (v[k] + w) or its best label (0).  A *choice*, one word per
site, stores these decisions for all k.

Functions take blocks (1, ITEMS) of samples.  Scores are split by label into parts: several blocks (PART, ITEMS).
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from locpmap.kernels.triton.local_scores import rounding


class Kind(NamedTuple):
    """The compile-time constants of a climb by lines."""

    ties: bool  # the smallest of several best labels wins
    n_labels: int
    part: int  # labels per part
    items: int  # samples
    ahead: int  # sites loaded together in the backward pass
    back: int  # sites loaded together in the traceback


class Line(NamedTuple):
    """A row or column, and pointers to the weights at its first site."""

    number: Any
    n_lines: Any
    length: Any
    apart: Any  # stride between lines, in sites
    step: Any  # stride between consecutive sites of a line
    along: Any  # weights of edges inside the line
    along_step: Any  # their stride between sites
    beside: Any  # weights of edges to the next line
    beside_apart: Any  # their stride between lines
    beside_step: Any


class Site(NamedTuple):
    """Pointers (1, ITEMS) to the data of a line's first site, and (PART, ITEMS) to the scores of its first part."""

    scores: Any
    labels: Any
    stamps: Any  # of the crossing line: the last turn that changed it
    real: Any  # which samples exist
    n_samples: Any


@triton.constexpr_function
def index_bits(n_labels: int) -> int:
    """Return the bits of a label's index; a choice holds one bit per label and an index."""
    return (n_labels - 1).bit_length()


@triton.constexpr_function
def n_parts(n_labels: int, part: int) -> int:
    """Return the number of parts of ``part`` labels each."""
    return -(-n_labels // part)


@triton.jit
def _labels_of(WHICH: tl.constexpr, PART: tl.constexpr):
    """Return the labels of a part, (PART, 1)."""
    return WHICH * PART + tl.arange(0, PART)[:, None]


@triton.jit
def best_labels(site, line, choices, KIND: tl.constexpr):
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
    # current label there; minus the weight between, the score of different labels; the largest absolute score.
    nobody, zero = none.to(tl.int32), tl.zeros([], dtype)
    passed = (nothing, none, nobody, zero, none)
    # A batch is loaded while the previous one is processed.  The first batch is blank and changes nothing, so these
    # loads occur only once in the code: each occurrence takes long to compile.
    batch = ()
    for _ in tl.static_range(AHEAD):
        batch += ((nothing, nobody, nobody, nobody, zero, zero, zero),)
    t = line.length - 1 + AHEAD
    while t >= AHEAD - 1:
        coming = ()
        for which in tl.static_range(AHEAD):
            coming += (_read(site, line, t - AHEAD - which, KIND),)
        tl.debug_barrier()  # keeps the compiler from delaying the loads
        for which in tl.static_range(AHEAD):
            passed = _choose(batch[which], passed, choices, t - which, KIND)
        batch = coming
        t -= AHEAD
    while t >= 0:
        passed = _choose(_read(site, line, t, KIND), passed, choices, t, KIND)
        t -= 1
    return -passed[1] > rounding(dtype) * (1 + passed[4])


@triton.jit
def _read(site, line, t, KIND: tl.constexpr):
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
            is_label = _labels_of(part, PART) < N_LABELS
            none = tl.where(is_label, 0.0, float("-inf")) + tl.zeros([PART, ITEMS], site.scores.dtype.element_ty)
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real & is_label, other=none),)
        else:
            scores += (tl.load(scores_ptr + part * PART * ITEMS, mask=site.real),)
    place, apart = site.labels + t.to(tl.int64) * (line.step * site.n_samples), line.apart * site.n_samples
    here = tl.load(place, mask=site.real, cache_modifier=".cg").to(tl.int32)
    before = tl.load(place - tl.where(first, apart, 0), mask=site.real, cache_modifier=".cg").to(tl.int32)
    after = tl.load(place + tl.where(last, apart, 0), mask=site.real, cache_modifier=".cg").to(tl.int32)
    beside = line.beside + t * line.beside_step
    w_before = tl.load(beside - line.beside_apart, mask=first, other=0.0)
    w_after = tl.load(beside, mask=last, other=0.0)
    w_start = tl.load(line.along + (t - 1) * line.along_step, mask=t > 0, other=0.0)
    return scores, here, before, after, w_before, w_after, w_start


@triton.jit
def _choose(now, passed, choices, t, KIND: tl.constexpr):
    """Store the choices of site t; return the state of the backward pass for the next site."""
    N_LABELS: tl.constexpr = KIND.n_labels
    PART: tl.constexpr = KIND.part
    ITEMS: tl.constexpr = KIND.items
    scores, here, before, after, w_before, w_after, w_start = now
    message, deficit, label_after, different, size = passed
    dtype: tl.constexpr = scores[0].dtype
    word: tl.constexpr = choices.dtype.element_ty
    PARTS: tl.constexpr = n_parts(N_LABELS, PART)
    mine, top = tl.zeros([PART, ITEMS], dtype), tl.full([PART, ITEMS], float("-inf"), dtype)
    v = ()
    for part in tl.static_range(PARTS):
        k = _labels_of(part, PART)
        own = tl.where(k == before, scores[part] + w_before, scores[part])
        own = tl.where(k == after, own + w_after, own)
        mine = tl.where(k == here, own, mine)
        v += (own + message[part],)
        top = tl.maximum(top, v[part])
    # Reduce over parts first: reducing over lanes takes longer.
    mine, top = tl.sum(mine, axis=0, keep_dims=True), tl.max(top, axis=0, keep_dims=True)
    deficit = mine + (deficit + tl.where(here == label_after, 0.0, different)) - top
    size = tl.maximum(size, tl.abs(top))
    different = -w_start
    best = tl.full([PART, ITEMS], N_LABELS, tl.int32)
    for part in tl.static_range(PARTS):
        k = _labels_of(part, PART)
        best = tl.minimum(best, tl.where(v[part] == top, k, N_LABELS))
    best = tl.min(best, axis=0, keep_dims=True)
    choice = tl.zeros([PART, ITEMS], word)
    sends = ()
    for part in tl.static_range(PARTS):
        k = _labels_of(part, PART)
        stay = v[part] - top
        sends += (tl.maximum(stay, different),)
        stays = stay > different
        if KIND.ties:
            stays = stays | ((stay == different) & (k < best))
        choice |= tl.where(stays, tl.full([1, 1], 1, word) << k.to(word), 0)
    choice = tl.sum(choice, axis=0, keep_dims=True).to(word)
    tl.store(choices + t * ITEMS + tl.arange(0, ITEMS)[None, :], choice | (best.to(word) << N_LABELS))
    return sends, deficit, here, different, size


@triton.jit
def trace(site, line, choices, turn, better, KIND: tl.constexpr):
    """Set the best labels of a line in the samples ``better``, from the choices that `best_labels` stored.

    Stamp the crossing lines of sites that change with the turn.
    """
    BACK: tl.constexpr = KIND.back
    ITEMS: tl.constexpr = KIND.items
    choices += tl.arange(0, ITEMS)[None, :]
    label = tl.zeros([1, ITEMS], tl.int32)  # label before the first site: has no effect
    batch = ()
    for _ in tl.static_range(BACK):
        batch += ((tl.zeros([1, ITEMS], choices.dtype.element_ty), label),)  # blank: label 0 stays 0
    t = tl.full([], -BACK, tl.int32)
    while t < line.length:
        coming = ()
        for which in tl.static_range(BACK):
            at = tl.minimum(t + BACK + which, line.length - 1)
            old = site.labels + at.to(tl.int64) * (line.step * site.n_samples)
            old = tl.load(old, mask=site.real, cache_modifier=".cg").to(tl.int32)
            coming += ((tl.load(choices + at * ITEMS), old),)
        tl.debug_barrier()
        for which in tl.static_range(BACK):
            choice, old = batch[which]
            label = _follow(choice, label, KIND.n_labels)
            at = t + which
            changes = better & (label != old) & (at < line.length)
            place = site.labels + at.to(tl.int64) * (line.step * site.n_samples)
            tl.store(place, label.to(site.labels.dtype.element_ty), mask=changes)
            tl.store(site.stamps + at * site.n_samples, tl.zeros_like(label) + turn, mask=changes)
        batch = coming
        t += BACK


@triton.jit
def _follow(choice, label, N_LABELS: tl.constexpr):
    """Return the label that a choice assigns to its site, given the label of the site before."""
    LAST: tl.constexpr = (1 << index_bits(N_LABELS)) - 1
    stays = (choice >> label.to(choice.dtype)) & 1
    return tl.where(stays > 0, label, ((choice >> N_LABELS) & LAST).to(tl.int32))
