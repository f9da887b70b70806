"""Coloured ICM on perturbed unaries: any graph, any table; see the reference.

One launch makes all sweeps.  A site of a sample is visited again only where a neighbour has changed since: a mark says
so, which whoever changes sets.  Nothing else could change it, so the labels are those of full sweeps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import NONE, Perturbation
from locpmap.kernels.triton.local_scores import add_local_scores, load_labels, neighbours, pairs_of, sizes_of, slots_at
from locpmap.kernels.triton.perturb import begin, perturb
from locpmap.kernels.triton.sweeping import ARRIVALS, BOUNDS, LATEST, is_still, launch_of
from locpmap.kernels.triton.turns import at_once, wait_for_all

ITEMS = 256  # that a program takes at a time; fewer of many labels or of tables


def climb_sites(
    model: Model,
    perturbation: Perturbation,
    start: int,
    given: torch.Tensor,
    max_sweeps: int,
    first_image: int,
    lo: int,
    hi: int,
    first_sample: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for images lo..hi and samples ``first_sample ..``; fills ``labels`` (hi - lo, S, R).

    Returns the number of the last sweep that changed anything, (hi - lo, R).
    """
    unary, n_samples = model.unary[lo:hi], labels.shape[2]
    if perturbation.scheme == NONE:  # all samples climb on the unaries themselves
        scores = unary[..., None].expand(*unary.shape, n_samples)
    else:
        scores = perturb(unary, model.site_id, perturbation, first_image + lo, first_sample, n_samples)
    noise = (perturbation, start, given[lo:hi], first_image + lo, first_sample)
    begin(unary, scores, model.site_id, *noise, labels)
    changed = torch.zeros((hi - lo, n_samples), dtype=torch.int32, device=labels.device)
    if max_sweeps > 0:
        sizes = sizes_of(model, 4096 if model.potts else 1024, ITEMS)
        grid, notes, n_classes = launch_of(model, hi - lo, n_samples, 0, unary.shape[1], sizes["ITEMS"])
        where = (n_classes, max_sweeps, lo, hi, unary.shape[1], n_samples, *scores.stride()[1:])
        marks = torch.ones(labels.shape, dtype=torch.uint8, device=labels.device)
        arrays = (scores, labels, marks, changed, model.order, pairs_of(model), notes)
        _climb[grid](*arrays, *where, **sizes, **at_once())
    return changed


@triton.jit(do_not_specialize=["n_classes", "max_sweeps", "lo", "hi"])
def _climb(
    scores_ptr,
    labels_ptr,
    marks_ptr,
    changed_ptr,
    order,
    pairs,
    notes,
    n_classes,
    max_sweeps,
    lo,
    hi,
    n_sites,
    n_samples,
    site_stride,
    label_stride,
    sample_stride,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """Items are samples of sites, samples fastest; ``marks`` (n, S, R)."""
    sweep, turn, noted = 1, 0, 0
    while sweep <= max_sweeps:
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            count = (last - first).to(tl.int64) * n_samples
            per_image = tl.cdiv(count, ITEMS)
            tile, n_tiles = tl.program_id(0).to(tl.int64), (hi - lo) * per_image
            while tile < n_tiles:
                n, begin = tile // per_image, tile % per_image * ITEMS
                # Sites times samples of an image may be more than 32 bits count to; from the block's first site on not.
                lane = (begin % n_samples).to(tl.int32) + tl.arange(0, ITEMS)
                r = lane % n_samples
                inside = begin + tl.arange(0, ITEMS) < count
                position = first + begin // n_samples + lane // n_samples
                site = tl.load(order + position, mask=inside, other=0).to(tl.int64)
                own = (n * n_sites + site) * n_samples + r
                mark = tl.load(marks_ptr + own, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
                if tl.max(mark, axis=0) > 0:
                    tl.debug_barrier()  # several warps may hold the same mark: all have read it before one clears it
                    tl.store(marks_ptr + own, tl.zeros_like(mark).to(tl.uint8), mask=mark > 0)
                    changes = _improve(
                        scores_ptr + n * n_sites * site_stride,
                        labels_ptr + n * n_sites * n_samples,
                        marks_ptr + n * n_sites * n_samples,
                        changed_ptr + n * n_samples,
                        pairs,
                        lo + n,
                        site,
                        r,
                        mark > 0,
                        sweep,
                        n_samples,
                        site_stride,
                        label_stride,
                        sample_stride,
                        POTTS,
                        N_FEATURES,
                        N_LABELS,
                        LABELS,
                    )
                    noted = tl.where(changes > 0, sweep, noted)
                tile += tl.num_programs(0)
            if noted == sweep:
                tl.store(notes + LATEST, sweep)
            turn += 1
            wait_for_all(notes + ARRIVALS, turn, tl.num_programs(0))
            number += 1
        sweep = tl.where(is_still(notes, sweep), max_sweeps, sweep) + 1


@triton.jit
def _improve(
    scores_ptr,
    labels_ptr,
    marks_ptr,
    changed_ptr,
    pairs,
    image,
    site,
    r,
    inside,
    sweep,
    n_samples,
    site_stride,
    label_stride,
    sample_stride,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Give items of an image, samples ``r`` of sites, their best labels; pointers are to the image's.

    Returns whether any changed; their neighbours are marked.
    """
    label = tl.arange(0, LABELS)[:, None]
    place = scores_ptr + site * site_stride + r * sample_stride
    scores = load_labels(place, label_stride, inside, N_LABELS, LABELS)
    own = labels_ptr + site * n_samples + r
    mine = tl.load(own, mask=inside, other=0).to(tl.int32)
    scores = add_local_scores(
        scores,
        labels_ptr + r,
        n_samples,
        pairs,
        image,
        site,
        inside,
        POTTS,
        N_FEATURES,
        N_LABELS,
        LABELS,
        AXIS=0,
        FRESH=True,
    )
    top = tl.max(scores, axis=0)
    best = tl.min(tl.where(scores == top[None, :], label, LABELS), axis=0)
    kept = tl.max(tl.where(label == mine[None, :], scores, float("-inf")), axis=0)
    better = inside & (top > kept)
    changes = tl.max(better.to(tl.int32), axis=0)
    if changes > 0:
        tl.store(own, best.to(labels_ptr.dtype.element_ty), mask=better)
        # Where another program has noted the sweep already there is no need to: all would write there.
        latest = tl.load(changed_ptr + r, mask=better, other=sweep, cache_modifier=".cg")
        tl.store(changed_ptr + r, tl.zeros_like(latest) + sweep, mask=latest < sweep)
        begin, degree = neighbours(pairs, site, better)
        step, most = 0, tl.max(degree, axis=0)
        while step < most:
            there, slot = slots_at(begin, degree, step)
            theirs = tl.load(pairs.neighbour + slot).to(tl.int64) * n_samples + r
            tl.store(marks_ptr + theirs, tl.full(theirs.shape, 1, tl.uint8), mask=there)
            step += 1
    return changes
