"""Conditional (Rao-Blackwell) probabilities, added up in whole numbers of 2^-40; see the reference."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.model import Model
from locpmap.kernels.reference import conditionals as reference
from locpmap.kernels.triton.local_scores import add_local_scores, pairs_of, sizes_of

UNIT = tl.constexpr(reference.UNIT)


def conditionals(model: Model, labels: torch.Tensor, sums: torch.Tensor, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` of images lo.. and sites begin..stop; labels (n, S, R), sums (n, S, L) int64.

    Samples lie side by side; sites may have gaps between them.
    """
    n_images, n_sites, n_samples = labels.shape
    sizes = sizes_of(model)
    grid = (n_images * triton.cdiv(stop - begin, sizes["ITEMS"]),)
    where = (lo, begin, stop, n_sites, n_samples, labels.stride(0), labels.stride(1))
    _conditionals[grid](model.unary, labels, sums, pairs_of(model), *where, **sizes)


@triton.jit(do_not_specialize=["lo", "begin", "stop"])
def _conditionals(
    unary_ptr,
    labels_ptr,
    sums_ptr,
    pairs,
    lo,
    begin,
    stop,
    n_sites,
    n_samples,
    image_apart,
    site_apart,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """A block of sites; the samples of a site lie side by side, so that one after another comes from the cache."""
    per_image = (stop - begin + ITEMS - 1) // ITEMS
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)).to(tl.int64)
    inside = site < stop
    label = tl.arange(0, LABELS)[None, :]
    held = inside[:, None] & (label < N_LABELS)
    image = lo + n
    own = n * n_sites + site
    unary = tl.load(unary_ptr + (image * n_sites + site)[:, None] * N_LABELS + label, mask=held, other=float("-inf"))
    total = tl.zeros([ITEMS, LABELS], tl.int64)
    r = 0
    while r < n_samples:
        around = labels_ptr + n * image_apart + r
        scores = add_local_scores(
            unary, around, site_apart, pairs, image, site, inside, POTTS, N_FEATURES, N_LABELS, LABELS
        )
        top = tl.max(scores, axis=1)
        # Where hard pairs leave a site no label, the sample's own has to do.
        stuck = top == float("-inf")
        mine = tl.load(around + site * site_apart, mask=inside, other=0).to(tl.int32)
        weights = tl.exp(scores - tl.where(stuck, 0.0, top)[:, None])
        weights = tl.where(stuck[:, None] & (label == mine[:, None]), 1.0, weights)
        p = (weights / tl.sum(weights, axis=1)[:, None]).to(tl.float64)
        total += (p * UNIT + 0.5).to(tl.int64)
        r += 1
    place = sums_ptr + own[:, None] * N_LABELS + label
    tl.store(place, tl.load(place, mask=held, other=0) + total, mask=held)
