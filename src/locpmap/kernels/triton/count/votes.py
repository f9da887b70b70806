"""Label counts of samples: `votes` adds them to totals, `shares` converts them to proportions and best labels.

Each lane handles one site and counts eight labels at a time, in the bytes of a 64-bit word.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SITES = 128  # sites per program
MOST = tl.constexpr(255)  # limit of samples counted in bytes before they are added to the totals


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add 1 to ``totals[n, i, labels[n, i, s]]``; the samples of a site in labels (n, S, R) are contiguous."""
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-(stop - begin) // SITES),)
    _votes[grid](labels, labels.stride()[:2], totals, begin, stop, n_sites, n_samples, totals.shape[2], SITES)


def shares(labels: torch.Tensor, probability: torch.Tensor, best: torch.Tensor) -> None:
    """Fill ``probability`` (n, S, L) with proportions of up to 255 samples, ``best`` with the most frequent labels."""
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-n_sites // SITES),)
    _shares[grid](labels, labels.stride()[:2], probability, best, n_sites, n_samples, probability.shape[2], SITES)


@triton.jit
def _sites(labels, begin, stop, strides, SITES: tl.constexpr):
    """Return a program's image, its sites in begin..stop, which of them exist, and pointers to their labels."""
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)).to(tl.int64)
    return n, site, site < stop, labels + n * strides[0] + site * strides[1]


@triton.jit
def _count(labels, inside, first, last, g):
    """Return the counts of labels 8g..8g + 7 in samples first..last, one per byte."""
    counts = tl.zeros(labels.shape, tl.int64)
    r = first
    while r < last:
        label = tl.load(labels + r, mask=inside, other=0).to(tl.int64) - g * 8
        counts += tl.where((label >= 0) & (label < 8), tl.full(labels.shape, 1, tl.int64) << ((label & 7) * 8), 0)
        r += 1
    return counts


@triton.jit(do_not_specialize=["begin", "stop"])
def _votes(labels, strides, totals, begin, stop, n_sites, n_samples, N_LABELS: tl.constexpr, SITES: tl.constexpr):
    n, site, inside, own = _sites(labels, begin, stop, strides, SITES)
    first = 0
    while first < n_samples:
        last = tl.minimum(first + MOST, n_samples)
        for g in range((N_LABELS + 7) // 8):
            counts = _count(own, inside, first, last, g)
            for m in tl.static_range(8):
                there = inside & (g * 8 + m < N_LABELS)
                place = totals + (n * n_sites + site) * N_LABELS + g * 8 + m
                count = ((counts >> (m * 8)) & 255).to(totals.dtype.element_ty)
                tl.store(place, tl.load(place, mask=there, other=0) + count, mask=there)
        first += MOST


@triton.jit
def _shares(labels, strides, probability, best_labels, n_sites, n_samples, N_LABELS: tl.constexpr, SITES: tl.constexpr):
    dtype: tl.constexpr = probability.dtype.element_ty
    n, site, inside, own = _sites(labels, 0, n_sites, strides, SITES)
    place = probability + (n * n_sites + site) * N_LABELS
    most, best = tl.full([SITES], -1, tl.int32), tl.zeros([SITES], tl.int64)
    total = tl.zeros([SITES], dtype) + n_samples
    for g in range((N_LABELS + 7) // 8):
        counts = _count(own, inside, 0, n_samples, g)
        for m in tl.static_range(8):
            there = g * 8 + m < N_LABELS
            count = ((counts >> (m * 8)) & 255).to(tl.int32)
            if dtype == tl.float32:
                share = tl.div_rn(count.to(dtype), total)
            else:
                share = count.to(dtype) / total
            tl.store(place + g * 8 + m, share, mask=inside & there)
            best = tl.where(there & (count > most), g * 8 + m, best)
            most = tl.maximum(most, count)
    tl.store(best_labels + n * n_sites + site, best, mask=inside)
