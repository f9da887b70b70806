"""Gibbs sampling; see the reference.  One launch makes many sweeps, with one call of Philox per site and sweep."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels import model as constants
from locpmap.kernels.model import Model
from locpmap.kernels.triton.grid_barrier import ARRIVALS, BOUNDS, at_once, launch_of, wait_for_all
from locpmap.kernels.triton.local_scores import add_local_scores, items_of, load_labels, pairs_of, sizes_of
from locpmap.kernels.triton.philox import CHAIN, uniform, words

VOTES, CONDITIONAL = tl.constexpr(constants.VOTES), tl.constexpr(constants.CONDITIONAL)
ITEMS = 128  # that a program takes at a time, one to a thread; fewer of many labels or of tables


class Chains(NamedTuple):
    """One chain per image."""

    unary: Any  # (N, S, L)
    labels: Any  # (N, S)
    totals: Any  # (N, S, L)
    order: Any  # (S,), as the next
    site_id: Any
    n_sites: int


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
    sizes = sizes_of(model, 4096 if model.potts else 1024, ITEMS)
    grid, notes, n_classes = launch_of(model, hi - lo, 1, begin, stop, sizes.items)
    chains = Chains(model.unary, labels, totals, model.order, model.site_id, labels.shape[1])
    keeps = kept is not None and len(kept) > 0
    _gibbs[grid](
        *(chains, labels if kept is None else kept, pairs_of(model), notes, float(temperature), float(cooling)),
        *(int(k0), int(k1), first_image, sweep, sweep + n_sweeps, first_counted, thin, n_classes, lo, hi, len(labels)),
        *(adds, keeps, sizes),
        **at_once(),
    )


@triton.jit(
    do_not_specialize=["first_image", "sweep", "end", "first_counted", "thin", "n_classes", "lo", "hi", "n_images"]
)
def _gibbs(
    chains,
    kept,
    pairs,
    notes,
    temperature: tl.float64,
    cooling: tl.float64,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    sweep,
    end,
    first_counted,
    thin,
    n_classes,
    lo,
    hi,
    n_images,
    ADDS: tl.constexpr,
    KEEPS: tl.constexpr,
    SIZES: tl.constexpr,
):
    LABELS: tl.constexpr = SIZES.labels
    N_LABELS: tl.constexpr = SIZES.n_labels
    labels, n_sites = chains.labels, chains.n_sites
    label = tl.arange(0, LABELS)[:, None]
    dtype: tl.constexpr = chains.unary.dtype.element_ty
    turn = 0
    while sweep < end:
        # Not so cold that single precision takes it for 0: a gap of 0 stays one.
        heat = tl.maximum(tl.full((1, 1), temperature, tl.float64), 1e-30).to(dtype)
        counts = (sweep >= first_counted) & ((sweep - first_counted) % thin == 0)
        number = 0
        while number < n_classes:
            first, last = tl.load(notes + BOUNDS + number), tl.load(notes + BOUNDS + number + 1)
            tile, n_tiles = tl.program_id(0), (hi - lo) * tl.cdiv(last - first, SIZES.items)
            while tile < n_tiles:
                image, site, inside = items_of(tile, chains.order, lo, first, last, SIZES.items)
                own = image * n_sites + site
                scores = load_labels(chains.unary + own * N_LABELS, 1, inside, SIZES)
                around = labels + image * n_sites
                scores = add_local_scores(scores, around, 1, pairs, image, site, inside, SIZES, AXIS=0, FRESH=True)
                top = tl.max(scores, axis=0)
                possible = top > float("-inf")
                weights = tl.exp((scores - tl.where(possible, top, 0.0)[None, :]) / heat)
                total = tl.where(possible, tl.sum(weights, axis=0), 1.0)
                where = tl.load(chains.site_id + site, mask=inside, other=0)
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
                    place = chains.totals + own * N_LABELS + drawn
                    tl.store(place, tl.load(place, mask=inside & counts, other=0.0) + 1, mask=inside & counts)
                elif ADDS == CONDITIONAL:
                    p = tl.where(possible[None, :], weights / total[None, :], (label == drawn[None, :]).to(dtype))
                    place = chains.totals + own[None, :] * N_LABELS + label
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
