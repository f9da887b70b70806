"""Coloured ICM on perturbed unaries: any graph, any table; see the reference."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.perturbation import Perturbation
from locpmap.kernels.triton.local_scores import add_local_scores, class_parts, pairs_of, sizes_of
from locpmap.kernels.triton.perturb import begin, perturb
from locpmap.kernels.triton.sweeping import sweep_until_still


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
    scores = perturb(unary, model.site_id, perturbation, first_image + lo, first_sample, n_samples)
    noise = (perturbation, start, given[lo:hi], first_image + lo, first_sample)
    begin(unary, scores, model.site_id, *noise, labels)
    changed = torch.zeros((hi - lo, n_samples), dtype=torch.int32, device=labels.device)
    pairs, sizes = pairs_of(model), sizes_of(model)
    parts = class_parts(model, 0, len(model.order))

    def sweep(number: int) -> None:
        for first, last in parts:
            grid = ((hi - lo) * triton.cdiv((last - first) * n_samples, sizes["ITEMS"]),)
            where = (lo, first, last, unary.shape[1], n_samples, number)
            _sweep[grid](scores, labels, model.order, pairs, changed, *where, **sizes)

    return sweep_until_still(sweep, changed, max_sweeps)


@triton.jit(do_not_specialize=["lo", "first", "last", "number"])
def _sweep(
    scores_ptr,
    labels_ptr,
    order,
    pairs,
    changed_ptr,
    lo,
    first,
    last,
    n_sites,
    n_samples,
    number,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """The sites at positions first..last of the order, samples fastest."""
    count = (last - first) * n_samples
    per_image = (count + ITEMS - 1) // ITEMS
    n = (tl.program_id(0) // per_image).to(tl.int64)
    lane = (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)
    inside = lane < count
    r = lane % n_samples
    # A sample that the last sweep left as it was is at its maximum.
    inside = inside & (tl.load(changed_ptr + n * n_samples + r, mask=inside, other=0) >= number - 1)
    site = tl.load(order + first + lane // n_samples, mask=inside, other=0).to(tl.int64)
    own = n * n_sites + site
    label = tl.arange(0, LABELS)[None, :]
    held = inside[:, None] & (label < N_LABELS)
    place = scores_ptr + (own[:, None] * N_LABELS + label) * n_samples + r[:, None]
    scores = tl.load(place, mask=held, other=float("-inf"))
    around = labels_ptr + n * n_sites * n_samples + r
    scores = add_local_scores(
        scores, around, n_samples, pairs, lo + n, site, inside, POTTS, N_FEATURES, N_LABELS, LABELS
    )
    mine = tl.load(labels_ptr + own * n_samples + r, mask=inside, other=0).to(tl.int32)
    top = tl.max(scores, axis=1)
    best = tl.min(tl.where(scores == top[:, None], label, LABELS), axis=1)
    kept = tl.max(tl.where(label == mine[:, None], scores, float("-inf")), axis=1)
    better = inside & (top > kept)
    tl.store(labels_ptr + own * n_samples + r, best.to(labels_ptr.dtype.element_ty), mask=better)
    tl.store(changed_ptr + n * n_samples + r, number + tl.zeros([ITEMS], tl.int32), mask=better)
