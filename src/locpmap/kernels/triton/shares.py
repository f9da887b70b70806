"""Shares of labels among samples, and the label that most have: `votes` and what comes of them, in one go."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SITES = 128  # of a program


def shares(labels: torch.Tensor, probability: torch.Tensor, best: torch.Tensor) -> None:
    """Fill ``probability`` (n, S, L) with the shares of the labels (n, S, R), ``best`` (n, S) with the largest one's.

    That is the smallest label of a tie.  At most 255 samples, which are counted in bytes and lie side by side; there
    may be gaps between sites.
    """
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-n_sites // SITES),)
    apart = (labels.stride(0), labels.stride(1))
    _shares[grid](labels, probability, best, n_sites, n_samples, *apart, probability.shape[2], SITES)


@triton.jit
def _shares(
    labels_ptr,
    probability_ptr,
    best_ptr,
    n_sites,
    n_samples,
    image_apart,
    site_apart,
    N_LABELS: tl.constexpr,
    SITES: tl.constexpr,
):
    """A lane is a site: it counts eight labels at a time, in the bytes of a word."""
    dtype: tl.constexpr = probability_ptr.dtype.element_ty
    per_image = (n_sites + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = ((tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)).to(tl.int64)
    inside = site < n_sites
    label_ptr = labels_ptr + n * image_apart + site * site_apart
    share_ptr = probability_ptr + (n * n_sites + site) * N_LABELS
    most, best = tl.full([SITES], -1, tl.int32), tl.zeros([SITES], tl.int64)
    total = tl.zeros([SITES], dtype) + n_samples
    for g in range((N_LABELS + 7) // 8):
        counts = tl.zeros([SITES], tl.int64)
        r = 0
        while r < n_samples:
            label = tl.load(label_ptr + r, mask=inside, other=0).to(tl.int64) - g * 8
            counts += tl.where((label >= 0) & (label < 8), tl.full([SITES], 1, tl.int64) << ((label & 7) * 8), 0)
            r += 1
        for m in tl.static_range(8):
            there = g * 8 + m < N_LABELS
            count = ((counts >> (m * 8)) & 255).to(tl.int32)
            if dtype == tl.float32:
                share = tl.div_rn(count.to(dtype), total)
            else:
                share = count.to(dtype) / total
            tl.store(share_ptr + g * 8 + m, share, mask=inside & there)
            best = tl.where(there & (count > most), g * 8 + m, best)
            most = tl.maximum(most, count)
    tl.store(best_ptr + n * n_sites + site, best, mask=inside)
