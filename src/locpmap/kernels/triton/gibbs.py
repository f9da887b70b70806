"""One sweep of Gibbs sampling; see the reference.  One launch per colour class, one call of Philox per site."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.reference import gibbs as reference
from locpmap.kernels.triton.local_scores import add_local_scores, class_parts, grid_of, items_of, pairs_of, sizes_of
from locpmap.kernels.triton.philox import CHAIN, uniform, words

VOTES, CONDITIONAL = tl.constexpr(reference.VOTES), tl.constexpr(reference.CONDITIONAL)


def gibbs(
    model: Model,
    labels: torch.Tensor,
    totals: torch.Tensor,
    adds: int,
    temperature: float,
    k0: int,
    k1: int,
    sweep: int,
    first_image: int,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order; labels (N, S), totals (N, S, L)."""
    pairs, sizes = pairs_of(model), sizes_of(model)
    arrays = (model.unary, labels, totals, model.order, model.site_id, pairs)
    # Not so cold that single precision takes it for 0: a gap of 0 stays one.
    key = (max(float(temperature), 1e-30), int(k0), int(k1), sweep, first_image)
    for first, last in class_parts(model, begin, stop):
        grid = grid_of(sizes, lo, hi, first, last)
        _gibbs[grid](*arrays, *key, lo, first, last, labels.shape[1], ADDS=adds, **sizes)


@triton.jit(do_not_specialize=["sweep", "first_image", "lo", "first", "last", "n_sites"])
def _gibbs(
    unary,
    labels,
    totals,
    order,
    site_id,
    pairs,
    temperature: tl.float64,
    k0: tl.uint32,
    k1: tl.uint32,
    sweep,
    first_image,
    lo,
    first,
    last,
    n_sites,
    ADDS: tl.constexpr,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    image, site, inside = items_of(order, lo, first, last, ITEMS)
    label = tl.arange(0, LABELS)[None, :]
    held = inside[:, None] & (label < N_LABELS)
    own = image * n_sites + site
    row = own[:, None] * N_LABELS + label
    scores = tl.where(label < N_LABELS, tl.load(unary + row, mask=held, other=0.0), float("-inf"))
    there = labels + image * n_sites
    scores = add_local_scores(scores, there, 1, pairs, image, site, inside, POTTS, N_FEATURES, N_LABELS, LABELS)

    top = tl.max(scores, axis=1)
    possible = top > float("-inf")
    gap = scores - tl.where(possible, top, 0.0)[:, None]
    weights = tl.exp(gap / tl.full((1, 1), temperature, scores.dtype))
    total = tl.where(possible, tl.sum(weights, axis=1), 1.0)
    word, _, _, _ = words(k0, k1, CHAIN, first_image + image, sweep, tl.load(site_id + site, mask=inside, other=0), 0)
    threshold = uniform(word).to(scores.dtype) * total
    # Sums of a scan are rounded each in its own way, so they may grow where a weight is 0, or not reach the total.
    likely = weights > 0
    passed = likely & (tl.cumsum(weights, axis=1) > threshold[:, None])
    drawn = tl.min(tl.where(passed, label, LABELS), axis=1)
    drawn = tl.where(drawn < LABELS, drawn, tl.max(tl.where(likely, label, 0), axis=1))
    drawn = tl.where(possible, drawn, tl.load(labels + own, mask=inside, other=0).to(tl.int32))
    tl.store(labels + own, drawn.to(labels.dtype.element_ty), mask=inside)

    if ADDS == VOTES:
        place = totals + own * N_LABELS + drawn
        tl.store(place, tl.load(place, mask=inside, other=0.0) + 1, mask=inside)
    elif ADDS == CONDITIONAL:
        p = tl.where(possible[:, None], weights / total[:, None], (label == drawn[:, None]).to(scores.dtype))
        sums = tl.load(totals + row, mask=held, other=0.0)
        tl.store(totals + row, sums + p.to(sums.dtype), mask=held)
