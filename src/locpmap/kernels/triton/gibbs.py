"""Gibbs sampling; see the reference.  One launch makes many sweeps, with one call of Philox per site and sweep."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.reference import gibbs as reference
from locpmap.kernels.triton.local_scores import add_local_scores, items_of, load_labels, pairs_of, sizes_of
from locpmap.kernels.triton.philox import CHAIN, uniform, words
from locpmap.kernels.triton.sweeping import ARRIVALS, BOUNDS, launch_of
from locpmap.kernels.triton.turns import at_once, wait_for_all

VOTES, CONDITIONAL = tl.constexpr(reference.VOTES), tl.constexpr(reference.CONDITIONAL)
ITEMS = 128  # that a program takes at a time, one to a thread; fewer of many labels or of tables


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
    n_sweeps: int = 1,
    cooling: float = 1.0,
    first_counted: int = 0,
    thin: int = 1,
    kept: torch.Tensor | None = None,
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order; labels (N, S), totals (N, S, L).

    Beyond the reference: sweeps ``sweep``, ``sweep + 1``, .. are made, ``n_sweeps`` of them, each ``cooling`` times
    as hot as the last.  Of these, numbers ``first_counted``, ``first_counted + thin``, .. add to the totals, and what
    they end with is stored in ``kept`` (K, N, S), first come first.
    """
    pairs, sizes = pairs_of(model), sizes_of(model, 4096 if model.potts else 1024, ITEMS)
    arrays = (model.unary, labels, totals, labels if kept is None else kept, model.order, model.site_id, pairs)
    key = (float(temperature), float(cooling), int(k0), int(k1), first_image)
    numbers = (sweep, sweep + n_sweeps, first_counted, thin)
    grid, notes, n_classes = launch_of(model, hi - lo, 1, begin, stop, sizes["ITEMS"])
    where = (notes, n_classes, lo, hi, *labels.shape)
    keeps = kept is not None and len(kept) > 0
    _gibbs[grid](*arrays, *key, *numbers, *where, ADDS=adds, KEEPS=keeps, **sizes, **at_once())


@triton.jit(
    do_not_specialize=["first_image", "sweep", "end", "first_counted", "thin", "n_classes", "lo", "hi", "n_images"]
)
def _gibbs(
    unary,
    labels,
    totals,
    kept,
    order,
    site_id,
    pairs,
    temperature: tl.float64,
    cooling: tl.float64,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    sweep,
    end,
    first_counted,
    thin,
    notes,
    n_classes,
    lo,
    hi,
    n_images,
    n_sites,
    ADDS: tl.constexpr,
    KEEPS: tl.constexpr,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    label = tl.arange(0, LABELS)[:, None]
    dtype: tl.constexpr = unary.dtype.element_ty
    turn = 0
    while sweep < end:
        # Not so cold that single precision takes it for 0: a gap of 0 stays one.
        heat = tl.maximum(tl.full((1, 1), temperature, tl.float64), 1e-30).to(dtype)
        counts = (sweep >= first_counted) & ((sweep - first_counted) % thin == 0)
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            tile, n_tiles = tl.program_id(0), (hi - lo) * tl.cdiv(last - first, ITEMS)
            while tile < n_tiles:
                image, site, inside = items_of(tile, order, lo, first, last, ITEMS)
                own = image * n_sites + site
                scores = load_labels(unary + own * N_LABELS, 1, inside, N_LABELS, LABELS)
                scores = add_local_scores(
                    scores,
                    labels + image * n_sites,
                    1,
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
                possible = top > float("-inf")
                weights = tl.exp((scores - tl.where(possible, top, 0.0)[None, :]) / heat)
                total = tl.where(possible, tl.sum(weights, axis=0), 1.0)
                where = tl.load(site_id + site, mask=inside, other=0)
                word, _, _, _ = words(k0, k1, CHAIN, first_image + image, sweep, where, 0)
                threshold = uniform(word).to(dtype) * total
                # Sums of a scan are rounded each in its own way, so they may grow where a weight is 0, or not reach
                # the total.
                likely = weights > 0
                passed = likely & (tl.cumsum(weights, axis=0) > threshold[None, :])
                drawn = tl.min(tl.where(passed, label, LABELS), axis=0)
                drawn = tl.where(drawn < LABELS, drawn, tl.max(tl.where(likely, label, 0), axis=0))
                drawn = tl.where(possible, drawn, tl.load(labels + own, mask=inside, other=0).to(tl.int32))
                tl.store(labels + own, drawn.to(labels.dtype.element_ty), mask=inside)

                if ADDS == VOTES:
                    place = totals + own * N_LABELS + drawn
                    tl.store(place, tl.load(place, mask=inside & counts, other=0.0) + 1, mask=inside & counts)
                elif ADDS == CONDITIONAL:
                    p = tl.where(possible[None, :], weights / total[None, :], (label == drawn[None, :]).to(dtype))
                    place = totals + own[None, :] * N_LABELS + label
                    held = (inside & counts)[None, :] & (label < N_LABELS)
                    sums = tl.load(place, mask=held, other=0.0)
                    tl.store(place, sums + p.to(sums.dtype), mask=held)
                if KEEPS:
                    tl.store(kept + own, drawn.to(kept.dtype.element_ty), mask=inside & counts)
                tile += tl.num_programs(0)
            turn += 1
            wait_for_all(notes + ARRIVALS, turn, tl.num_programs(0))
            number += 1
        temperature *= cooling
        kept += counts.to(tl.int64) * n_images * n_sites
        sweep += 1
