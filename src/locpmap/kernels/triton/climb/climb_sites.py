"""Coloured ICM on perturbed unaries, for any graph and any tables; see the reference.

One launch performs all sweeps.  A site that changes in a sample marks its neighbours there, and later sweeps visit only
marked sites.  The best label of other sites cannot change, so the labels equal those of full sweeps.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.arrays import of_images
from locpmap.kernels.model import Array, Model
from locpmap.kernels.perturbation import NONE
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.grid_barrier import ARRIVALS, BOUNDS, LATEST, at_once, is_still, launch_of, wait_for_all
from locpmap.kernels.triton.local_scores import add_local_scores, load_labels, neighbours, pairs_of, sizes_of, slots_at
from locpmap.kernels.triton.perturb import begin, perturb

ITEMS = 256  # items per step of a program; fewer with many labels or with tables


class State(NamedTuple):
    """The state of a climb, with the strides of ``scores``."""

    scores: Any  # (n, S, L, R)
    site_stride: int
    label_stride: int
    sample_stride: int
    labels: Any  # (n, S, R)
    marks: Any  # (n, S, R)
    changed: Any  # (n, R): the last sweep that changed each sample
    n_sites: int
    n_samples: int


def climb_sites(model: Model, climb: Climb, span: Span, labels: Array) -> Array:
    """Fill ``labels`` (n, S, R); return the last sweep that changed anything, (n, R)."""
    lo, hi, _, n_samples = span
    unary, max_sweeps = of_images(model.unary, lo, hi), climb.max_sweeps
    if climb.perturbation.scheme == NONE:  # all samples climb on the unaries themselves
        scores = unary[..., None].expand(*unary.shape, n_samples)
    else:
        scores = perturb(unary, model.site_id, climb.perturbation, climb.first_image, span)
    begin(unary, scores, model.site_id, climb, span, labels)
    changed = torch.zeros((hi - lo, n_samples), dtype=torch.int32, device=labels.device)
    if max_sweeps > 0:
        sizes = sizes_of(model, 4096 if model.potts else 1024, ITEMS)
        grid, notes, n_classes = launch_of(model, hi - lo, n_samples, sizes.items)
        marks = torch.ones(labels.shape, dtype=torch.uint8, device=labels.device)
        strides: tuple[int, int, int] = scores.stride()[1:]
        state = State(scores, *strides, labels, marks, changed, unary.shape[1], n_samples)
        _climb[grid](state, model.order, pairs_of(model), notes, n_classes, max_sweeps, lo, hi, sizes, **at_once())
    return changed


@triton.jit(do_not_specialize=["n_classes", "max_sweeps", "lo", "hi"])
def _climb(climb, order, pairs, notes, n_classes, max_sweeps, lo, hi, SIZES: tl.constexpr):
    """Perform the sweeps; items are samples of sites, and samples vary fastest."""
    ITEMS: tl.constexpr = SIZES.items
    sweep, turn, noted = 1, 0, 0
    while sweep <= max_sweeps:
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            count = (last - first).to(tl.int64) * climb.n_samples
            per_image = tl.cdiv(count, ITEMS)
            tile, n_tiles = tl.program_id(0).to(tl.int64), (hi - lo) * per_image
            while tile < n_tiles:
                n, begin = tile // per_image, tile % per_image * ITEMS
                # Item numbers within an image may exceed 32 bits; offsets from the block's first site do not.
                lane = (begin % climb.n_samples).to(tl.int32) + tl.arange(0, ITEMS)
                r = lane % climb.n_samples
                inside = begin + tl.arange(0, ITEMS) < count
                position = first + begin // climb.n_samples + lane // climb.n_samples
                site = tl.load(order + position, mask=inside, other=0).to(tl.int64)
                own = climb.marks + (n * climb.n_sites + site) * climb.n_samples + r
                mark = tl.load(own, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
                if tl.max(mark, axis=0) > 0:
                    tl.debug_barrier()  # several warps may hold the same mark: all must read it before one clears it
                    tl.store(own, tl.zeros_like(mark).to(tl.uint8), mask=mark > 0)
                    changes = _improve(climb, pairs, n, lo + n, site, r, mark > 0, sweep, SIZES)
                    noted = tl.where(changes > 0, sweep, noted)
                tile += tl.num_programs(0)
            if noted == sweep:
                tl.store(notes + LATEST, sweep)
            turn += 1
            wait_for_all(notes + ARRIVALS, turn, tl.num_programs(0))
            number += 1
        sweep = tl.where(is_still(notes, sweep), max_sweeps, sweep) + 1


@triton.jit
def _improve(climb, pairs, n, image, site, r, inside, sweep, SIZES: tl.constexpr):
    """Set the best labels in samples ``r``, mark the neighbours of changed sites; return whether any label changed."""
    label = tl.arange(0, SIZES.labels)[:, None]
    labels, marks = climb.labels + n * climb.n_sites * climb.n_samples, climb.marks
    marks += n * climb.n_sites * climb.n_samples
    place = climb.scores + n * climb.n_sites * climb.site_stride + site * climb.site_stride + r * climb.sample_stride
    scores = load_labels(place, climb.label_stride, inside, SIZES)
    own = labels + site * climb.n_samples + r
    mine = tl.load(own, mask=inside, other=0).to(tl.int32)
    around = (labels + r, climb.n_samples, None)
    scores = add_local_scores(scores, around, pairs, image, site, inside, SIZES, 0, ".cg")
    top = tl.max(scores, axis=0)
    best = tl.min(tl.where(scores == top[None, :], label, SIZES.labels), axis=0)
    kept = tl.max(tl.where(label == mine[None, :], scores, float("-inf")), axis=0)
    better = inside & (top > kept)
    changes = tl.max(better.to(tl.int32), axis=0)
    if changes > 0:
        tl.store(own, best.to(labels.dtype.element_ty), mask=better)
        # Only write a sweep that is not recorded yet, so that programs do not all write to the same address.
        changed = climb.changed + n * climb.n_samples + r
        latest = tl.load(changed, mask=better, other=sweep, cache_modifier=".cg")
        tl.store(changed, tl.zeros_like(latest) + sweep, mask=latest < sweep)
        begin, degree = neighbours(pairs, site, better)
        step, most = 0, tl.max(degree, axis=0)
        while step < most:
            there, slot = slots_at(begin, degree, step)
            theirs = tl.load(pairs.neighbour + slot).to(tl.int64) * climb.n_samples + r
            tl.store(marks + theirs, tl.full(theirs.shape, 1, tl.uint8), mask=there)
            step += 1
    return changes
