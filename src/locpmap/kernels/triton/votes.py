"""Counting the labels of samples."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SITES = 128  # of a program
MOST = 255  # samples that are counted in bytes before they go to the totals


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add one to ``totals[n, i, labels[n, i, s]]`` for sites begin..stop; labels (n, S, R), totals (n, S, L).

    Samples lie side by side; sites may have gaps between them.
    """
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-(stop - begin) // SITES),)
    apart = (labels.stride(0), labels.stride(1))
    _votes[grid](labels, totals, begin, stop, n_sites, n_samples, *apart, totals.shape[2], MOST, SITES)


@triton.jit(do_not_specialize=["begin", "stop"])
def _votes(
    labels_ptr,
    totals_ptr,
    begin,
    stop,
    n_sites,
    n_samples,
    image_apart,
    site_apart,
    N_LABELS: tl.constexpr,
    MOST: tl.constexpr,
    SITES: tl.constexpr,
):
    """A lane is a site: it counts eight labels at a time, in the bytes of a word."""
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)).to(tl.int64)
    inside = site < stop
    label_ptr = labels_ptr + n * image_apart + site * site_apart
    total_ptr = totals_ptr + (n * n_sites + site) * N_LABELS
    first = 0
    while first < n_samples:
        last = tl.minimum(first + MOST, n_samples)
        for g in range((N_LABELS + 7) // 8):
            counts = tl.zeros([SITES], tl.int64)
            r = first
            while r < last:
                label = tl.load(label_ptr + r, mask=inside, other=0).to(tl.int64) - g * 8
                counts += tl.where((label >= 0) & (label < 8), tl.full([SITES], 1, tl.int64) << ((label & 7) * 8), 0)
                r += 1
            for m in tl.static_range(8):
                there = inside & (g * 8 + m < N_LABELS)
                place = total_ptr + g * 8 + m
                count = ((counts >> (m * 8)) & 255).to(totals_ptr.dtype.element_ty)
                tl.store(place, tl.load(place, mask=there, other=0) + count, mask=there)
        first += MOST
