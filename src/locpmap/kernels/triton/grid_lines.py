"""The best labels of rows or columns of a grid with Potts weights: from the line's end back, then on from its start.

Scores of the labels at a site, with the best of all sites behind it, are kept less their maximum: v <= 0, so that
single precision lasts for any length.  Where the site before has label k, at weight w, this one takes k too (v[k] + w)
or its own best label, the crest (0), or, for w < 0 and k the crest, the runner-up.  A word per site notes which.

Functions take blocks (1, ITEMS) of samples; scores are blocks (LABELS, ITEMS).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


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
    """Where a line's first site has its scores (LABELS, ITEMS) and its labels (1, ITEMS), and which samples exist."""

    scores: Any
    labels: Any
    real: Any


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
    ROUNDING: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Note the choices of a line; returns in which samples it can be improved by more than rounding, (1, ITEMS).

    ATTRACTIVE says that no weight is below 0, TIES that of equal scores the smallest label shall win.
    """
    dtype: tl.constexpr = site.scores.dtype.element_ty
    none = tl.zeros([1, ITEMS], dtype)
    # The scores v of the site after, as seen from here; what the current labels from there on lack; the first of them;
    # what equal and what different labels add here; how large scores are.
    passed = (tl.zeros([LABELS, ITEMS], dtype), none, none.to(tl.int32), tl.zeros([], dtype), tl.zeros([], dtype), none)
    t = lines.length - 1
    while (t + 1) % AHEAD > 0:
        now = _read(site, near, lines, line, t, n_samples, N_LABELS, LABELS)
        passed = _choose(now, passed, choices_ptr, t, ATTRACTIVE, TIES, LABELS, ITEMS)
        t -= 1
    batch = _read_batch(site, near, lines, line, t, n_samples, N_LABELS, LABELS, AHEAD)
    while t >= 0:
        coming = _read_batch(site, near, lines, line, t - AHEAD, n_samples, N_LABELS, LABELS, AHEAD)
        for which in tl.static_range(AHEAD):
            passed = _choose(batch[which], passed, choices_ptr, t - which, ATTRACTIVE, TIES, LABELS, ITEMS)
        batch = coming
        t -= AHEAD
    return -passed[1] > ROUNDING * (1 + passed[5])


@triton.jit
def _read_batch(
    site,
    near,
    lines,
    line,
    t,
    n_samples,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """What is known of sites t, t - 1, ... of a line.  Nothing waits for these loads before their batch comes up."""
    batch = ()
    for which in tl.static_range(AHEAD):
        batch += (_read(site, near, lines, line, t - which, n_samples, N_LABELS, LABELS),)
    tl.debug_barrier()  # or the compiler would put the loads off
    return batch


@triton.jit
def _read(site, near, lines, line, t, n_samples, N_LABELS: tl.constexpr, LABELS: tl.constexpr):
    """What is known of site t of a line: scores, labels here and in the lines before and after, weights.

    Before the line's start that of its first site, to no use.
    """
    t = tl.maximum(t, 0)
    k = tl.arange(0, LABELS)[:, None]
    first, last = line > 0, line + 1 < lines.n_lines
    place = t.to(tl.int64) * lines.step * n_samples
    if LABELS > N_LABELS:
        none = tl.where(k < N_LABELS, 0.0, float("-inf")) + tl.zeros(site.scores.shape, site.scores.dtype.element_ty)
        scores = tl.load(site.scores + place * N_LABELS, mask=site.real & (k < N_LABELS), other=none)
    else:
        scores = tl.load(site.scores + place * N_LABELS, mask=site.real)
    apart = lines.line * n_samples
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
def _choose(
    now, passed, choices_ptr, t, ATTRACTIVE: tl.constexpr, TIES: tl.constexpr, LABELS: tl.constexpr, ITEMS: tl.constexpr
):
    """One site on: note its choices, and what to pass."""
    scores, here, before, after, w_before, w_after, w_start = now
    sent, lack, label_after, equal, different, size = passed
    word: tl.constexpr = choices_ptr.dtype.element_ty
    k = tl.arange(0, LABELS)[:, None]
    scores = tl.where(k == before, scores + w_before, scores)
    scores = tl.where(k == after, scores + w_after, scores)
    mine = tl.sum(tl.where(k == here, scores, 0.0), axis=0, keep_dims=True)
    v = scores + sent
    top = tl.max(v, axis=0, keep_dims=True)
    lack = mine + (lack + tl.where(here == label_after, equal, different)) - top
    size = tl.maximum(size, tl.abs(top))
    v -= top
    crest = tl.min(tl.where(v == 0.0, k, LABELS), axis=0, keep_dims=True)
    equal, different = tl.minimum(w_start, 0.0), -tl.maximum(w_start, 0.0)
    if ATTRACTIVE:
        runner, other, stay, leave = crest, crest, v, different
    else:
        rest = tl.where(k == crest, float("-inf"), v)
        second = tl.max(rest, axis=0, keep_dims=True)
        runner = tl.min(tl.where(rest == second, k, LABELS), axis=0, keep_dims=True)
        other, stay = tl.where(k == crest, runner, crest), v + equal
        leave = different + tl.where(k == crest, second, 0.0)
    sent = tl.maximum(stay, leave)
    stays = stay > leave
    if TIES:
        stays = stays | ((stay == leave) & (k < other))
    bit = tl.full([1, 1], 1, word) << k.to(word)
    choice = tl.sum(tl.where(stays, bit, 0), axis=0, keep_dims=True).to(word)
    choice = choice | (crest.to(word) << LABELS) | (runner.to(word) << (LABELS + 8))
    tl.store(choices_ptr + t * ITEMS + tl.arange(0, ITEMS)[None, :], choice)
    return sent, lack, here, equal, different, size


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
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Store the best labels of a line in the samples that are ``real``, by the choices that `best_labels` noted.

    Stamps this line and those across at the sites that change.
    """
    now = tl.zeros([1, ITEMS], tl.int32) + turn
    tl.store(stamp + (lines.stamps + line) * n_samples, now, mask=real)
    stamp += lines.crossing * n_samples
    choices_ptr += tl.arange(0, ITEMS)[None, :]
    label = tl.zeros([1, ITEMS], tl.int32)  # before the first site, where nothing depends on it
    t = tl.zeros([], tl.int32)
    batch = _recall(site, choices_ptr, lines, t, n_samples, ITEMS, AHEAD)
    while t < lines.length:
        coming = _recall(site, choices_ptr, lines, t + AHEAD, n_samples, ITEMS, AHEAD)
        for which in tl.static_range(AHEAD):
            choice, old = batch[which]
            crest, runner = (choice >> LABELS) & 255, (choice >> (LABELS + 8)) & 255
            stays = (choice >> label.to(choice.dtype)) & 1
            label = tl.where(stays > 0, label, tl.where(label == crest, runner, crest).to(tl.int32))
            changes = real & (label != old) & (t + which < lines.length)
            place = site.labels + (t + which).to(tl.int64) * lines.step * n_samples
            tl.store(place, label.to(site.labels.dtype.element_ty), mask=changes)
            tl.store(stamp + (t + which) * n_samples, now, mask=changes)
        batch = coming
        t += AHEAD


@triton.jit
def _recall(site, choices_ptr, lines, t, n_samples, ITEMS: tl.constexpr, AHEAD: tl.constexpr):
    """The choices noted at sites t, t + 1, ... of a line and their current labels; beyond its end those of the last."""
    batch = ()
    for which in tl.static_range(AHEAD):
        at = tl.minimum(t + which, lines.length - 1)
        place = site.labels + at.to(tl.int64) * lines.step * n_samples
        old = tl.load(place, mask=site.real, cache_modifier=".cg").to(tl.int32)
        batch += ((tl.load(choices_ptr + at * ITEMS), old),)
    tl.debug_barrier()
    return batch
