"""Mean field and the lower bound of log Z that it maximises; see the reference.

One launch performs many sweeps over marked sites, those with a changed neighbour.  A block without marks costs only the
load of its marks.  Sums have the beliefs' dtype.
"""

import torch
import triton
import triton.language as tl

from locpmap.kernels import model as constants
from locpmap.kernels.model import Array, Model
from locpmap.kernels.reference import mean_field as reference
from locpmap.kernels.triton.grid_barrier import ARRIVALS, BOUNDS, LATEST, at_once, is_still, launch_of, wait_for_all
from locpmap.kernels.triton.local_scores import (
    items_of,
    neighbours,
    pair_scores,
    pairs_of,
    potts_weights,
    sizes_of,
    slots_at,
)

CHANGED, FORBIDDEN = tl.constexpr(constants.CHANGED), tl.constexpr(reference.FORBIDDEN)
BLOCK = 2048  # sites times labels per program and step; fewer with tables


def mean_field(model: Model, beliefs: Array, dirty: Array, tolerance: float, n_sweeps: int = 1) -> Array:
    """Update beliefs (N, S, L) at the sites marked in ``dirty`` (N, S), in up to ``n_sweeps`` sweeps.

    Return the number of sweeps that found a mark, as a tensor of one element.  The update stops after the first sweep
    that finds none.
    """
    sizes, n_images = sizes_of(model, BLOCK if model.potts else 512), len(dirty)
    grid, notes, n_classes = launch_of(model, n_images, 1, sizes.items)
    arrays = (model.unary, beliefs, dirty, model.order, dirty.shape[1])
    numbers = (float(tolerance), n_classes, n_sweeps, n_images)
    _mean_field[grid](arrays, pairs_of(model), notes, *numbers, sizes, **at_once())
    return notes[LATEST.value]


def mean_field_bound(model: Model, beliefs: Array) -> Array:
    """Return the bound's terms of each site and the edges that begin there, (N, S) float64; beliefs (N, S, L)."""
    sizes, (n_images, n_sites, _) = sizes_of(model), beliefs.shape
    terms = torch.empty((n_images, n_sites), dtype=torch.float64, device=beliefs.device)
    grid = (n_images * triton.cdiv(n_sites, sizes.items),)
    _bound[grid](model.unary, beliefs, terms, model.order, pairs_of(model), n_sites, sizes)
    return terms


def score_terms(model: Model, labels: Array) -> Array:
    """Return the terms of the score of labels (N, S), as `mean_field_bound`: the bound of beliefs of 0 and 1."""
    beliefs = torch.zeros(model.unary.shape, dtype=torch.float64, device=labels.device)
    return mean_field_bound(model, beliefs.scatter_(2, labels.long()[..., None], 1.0))


@triton.jit(do_not_specialize=["n_classes", "n_sweeps", "n_images"])
def _mean_field(arrays, pairs, notes, tolerance: tl.float64, n_classes, n_sweeps, n_images, SIZES: tl.constexpr):
    unary, beliefs, dirty, order, n_sites = arrays
    N_LABELS: tl.constexpr = SIZES.n_labels
    sweep, turn, noted = 1, 0, 0
    while sweep <= n_sweeps:
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            tile, n_tiles = tl.program_id(0), n_images * tl.cdiv(last - first, SIZES.items)
            while tile < n_tiles:
                image, site, inside = items_of(tile, order, first, last, SIZES.items)
                place = dirty + image * n_sites + site
                mark = tl.load(place, mask=inside, other=0, cache_modifier=".cg").to(tl.int32)
                if tl.max(mark, axis=0) > 0:
                    noted = sweep
                    # Several warps hold the same mark: all must read it before one clears it.
                    tl.debug_barrier()
                    tl.store(place, tl.zeros_like(mark).to(dirty.dtype.element_ty), mask=mark > 0)
                    around = (beliefs + image * n_sites * N_LABELS, dirty + image * n_sites)
                    _update(unary + image * n_sites * N_LABELS, *around, pairs, tolerance, image, site, mark, SIZES)
                tile += tl.num_programs(0)
            if noted == sweep:
                tl.store(notes + LATEST, sweep)
            turn += 1
            wait_for_all(notes + ARRIVALS, turn, tl.num_programs(0))
            number += 1
        sweep = tl.where(is_still(notes, sweep), n_sweeps, sweep) + 1


@triton.jit
def _update(unary, beliefs, dirty, pairs, tolerance, image, site, mark, SIZES: tl.constexpr):
    """Update the beliefs of the marked sites; pointers are to the image's data."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    dtype: tl.constexpr = beliefs.dtype.element_ty
    label = tl.arange(0, SIZES.labels)[None, :]
    visited = mark > 0
    held = visited[:, None] & (label < N_LABELS)
    row = site[:, None] * N_LABELS + label
    scores = tl.load(unary + row, mask=held, other=0.0).to(dtype)
    before = tl.load(beliefs + row, mask=held, other=0.0, cache_modifier=".cg")
    begin, degree = neighbours(pairs, site, visited)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        # Four Potts weights are loaded together, so that their latencies overlap.
        for ahead in tl.static_range(4 if SIZES.potts else 1):
            there, slot = slots_at(begin, degree, step + ahead)
            theirs = beliefs + tl.load(pairs.neighbour + slot).to(tl.int64) * N_LABELS
            gain = tl.zeros_like(scores)
            if SIZES.potts:
                weight = potts_weights(pairs, image, slot).to(dtype)
                belief = tl.load(theirs[:, None] + label, mask=label < N_LABELS, other=0.0, cache_modifier=".cg")
                gain += weight[:, None] * belief
            else:
                for other in range(N_LABELS):
                    score = pair_scores(pairs, image, slot[:, None], label, other, SIZES).to(dtype)
                    belief = tl.load(theirs + other, cache_modifier=".cg")
                    gain += belief[:, None] * tl.where(score > float("-inf"), score, FORBIDDEN)
            scores += tl.where(there[:, None], gain, 0.0)
        step += 4 if SIZES.potts else 1

    scores = tl.where(label < N_LABELS, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    fresh = weights / tl.sum(weights, axis=1)[:, None]
    far = held & (tl.abs(fresh - before) > tl.full((1, 1), tolerance, dtype))
    moved = visited & ((mark > CHANGED) | (tl.max(far.to(tl.int32), axis=1) > 0))
    tl.store(beliefs + row, fresh, mask=held & moved[:, None])
    # Neighbours belong to other classes: before the next barrier, concurrent writes there all store this mark.
    degree = tl.where(moved, degree, 0)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(begin[:, None], degree[:, None], step + tl.arange(0, 4)[None, :])
        place = dirty + tl.load(pairs.neighbour + slot)
        theirs = tl.load(place, cache_modifier=".cg")
        tl.store(place, (theirs | CHANGED).to(theirs.dtype), mask=there)
        step += 4


@triton.jit(do_not_specialize=["n_sites"])
def _bound(unary, beliefs, terms, order, pairs, n_sites, SIZES: tl.constexpr):
    N_LABELS: tl.constexpr = SIZES.n_labels
    image, site, inside = items_of(tl.program_id(0), order, 0, n_sites, SIZES.items)
    dtype: tl.constexpr = beliefs.dtype.element_ty
    label = tl.arange(0, SIZES.labels)[None, :]
    own = image * n_sites + site
    row = own[:, None] * N_LABELS + label
    q = tl.load(beliefs + row, mask=inside[:, None] & (label < N_LABELS), other=0.0)
    held = q > 0
    score = tl.load(unary + row, mask=held, other=0.0).to(dtype)
    parts = q * (score - tl.log(tl.where(held, q, 1.0)))

    begin, degree = neighbours(pairs, site, inside)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(begin, degree, step)
        ours = tl.where((there & (tl.load(pairs.end + slot) == 0))[:, None], q, 0.0)
        theirs = beliefs + (image * n_sites + tl.load(pairs.neighbour + slot)) * N_LABELS
        if SIZES.potts:
            joint = ours * tl.load(theirs[:, None] + label, mask=label < N_LABELS, other=0.0)
            parts += joint * potts_weights(pairs, image, slot).to(dtype)[:, None]
        else:
            for other in range(N_LABELS):
                joint = ours * tl.load(theirs + other)[:, None]
                score = pair_scores(pairs, image, slot[:, None], label, other, SIZES).to(dtype)
                parts += joint * tl.where(joint > 0, score, 0.0)
        step += 1
    tl.store(terms + own, tl.sum(parts, axis=1).to(terms.dtype.element_ty), mask=inside)
