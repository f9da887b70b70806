"""Counting the labels of samples."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

ITEMS, SAMPLES = 32, 64  # that a program reads at a time


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add one to ``totals[n, i, labels[n, i, s]]`` for sites begin..stop; labels (n, S, R), totals (n, S, L)."""
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * triton.cdiv(stop - begin, ITEMS),)
    _votes[grid](labels, totals, begin, stop, n_sites, n_samples, totals.shape[2], ITEMS, SAMPLES)


@triton.jit
def _votes(
    labels_ptr,
    totals_ptr,
    begin,
    stop,
    n_sites,
    n_samples,
    N_LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    SAMPLES: tl.constexpr,
):
    per_image = (stop - begin + ITEMS - 1) // ITEMS
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = begin + (tl.program_id(0) % per_image) * ITEMS + tl.arange(0, ITEMS)
    inside = site < stop
    own = n * n_sites + site
    first = 0
    while first < n_samples:
        r = first + tl.arange(0, SAMPLES)
        held = inside[:, None] & (r < n_samples)[None, :]
        label = tl.load(labels_ptr + own[:, None] * n_samples + r[None, :], mask=held, other=0).to(tl.int32)
        for k in range(N_LABELS):
            place = totals_ptr + own * N_LABELS + k
            count = tl.sum((held & (label == k)).to(tl.int32), axis=1)
            tl.store(place, tl.load(place, mask=inside, other=0) + count, mask=inside)
        first += SAMPLES
