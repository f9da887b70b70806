"""Mean field; see the reference.  One launch per colour class; where no site of a block is marked, its marks are read.

Sums are made in the beliefs' type.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.reference import mean_field as reference
from locpmap.kernels.reference import messages
from locpmap.kernels.triton.local_scores import (
    class_parts,
    grid_of,
    items_of,
    neighbours,
    pairs_of,
    potts_weights,
    sizes_of,
    slots_at,
    table_scores,
)

CHANGED, FORBIDDEN = tl.constexpr(messages.CHANGED), tl.constexpr(reference.FORBIDDEN)


def mean_field(
    model: Model,
    beliefs: torch.Tensor,
    dirty: torch.Tensor,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order; beliefs (N, S, L), dirty (N, S)."""
    pairs, sizes = pairs_of(model), sizes_of(model)
    arrays = (model.unary, beliefs, dirty, model.order, pairs)
    for first, last in class_parts(model, begin, stop):
        grid = grid_of(sizes, lo, hi, first, last)
        _mean_field[grid](*arrays, float(tolerance), lo, first, last, dirty.shape[1], **sizes)


@triton.jit(do_not_specialize=["lo", "first", "last", "n_sites"])
def _mean_field(
    unary,
    beliefs,
    dirty,
    order,
    pairs,
    tolerance: tl.float64,
    lo,
    first,
    last,
    n_sites,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    image, site, inside = items_of(order, lo, first, last, ITEMS)
    dtype: tl.constexpr = beliefs.dtype.element_ty
    label = tl.arange(0, LABELS)[None, :]
    own = image * n_sites + site
    mark = tl.load(dirty + own, mask=inside, other=0)
    visited = mark > 0
    tl.debug_barrier()  # several warps hold the same mark: all must have read it before one clears it
    tl.store(dirty + own, tl.zeros_like(mark), mask=visited)

    held = visited[:, None] & (label < N_LABELS)
    row = own[:, None] * N_LABELS + label
    scores = tl.load(unary + row, mask=held, other=0.0).to(dtype)
    begin, degree = neighbours(pairs, site, visited)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(begin, degree, step)
        theirs = beliefs + (image * n_sites + tl.load(pairs.neighbour + slot)) * N_LABELS
        gain = tl.zeros_like(scores)
        if POTTS:
            weight = potts_weights(pairs, image, slot).to(dtype)
            gain += weight[:, None] * tl.load(theirs[:, None] + label, mask=label < N_LABELS, other=0.0)
        else:
            for other in range(N_LABELS):
                score = table_scores(pairs, image, slot, other, N_FEATURES, N_LABELS, LABELS).to(dtype)
                gain += tl.load(theirs + other)[:, None] * tl.where(score > float("-inf"), score, FORBIDDEN)
        scores += tl.where(there[:, None], gain, 0.0)
        step += 1

    scores = tl.where(label < N_LABELS, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    fresh = weights / tl.sum(weights, axis=1)[:, None]
    step_size = tl.abs(fresh - tl.load(beliefs + row, mask=held, other=0.0))
    far = held & (step_size > tl.full((1, 1), tolerance, dtype))
    moved = visited & ((mark > CHANGED) | (tl.max(far.to(tl.int32), axis=1) > 0))
    tl.store(beliefs + row, fresh, mask=held & moved[:, None])
    # Neighbours are of other classes: nothing else in this launch writes there but the same mark.
    degree = tl.where(moved, degree, 0)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there, slot = slots_at(begin, degree, step)
        place = dirty + image * n_sites + tl.load(pairs.neighbour + slot)
        tl.store(place, (tl.load(place) | CHANGED).to(mark.dtype), mask=there)
        step += 1
