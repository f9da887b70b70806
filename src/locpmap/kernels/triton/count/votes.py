"""Label counts of samples, added to totals.

Each lane handles one site and counts eight labels at a time, in the bytes of a 64-bit word.
"""

import torch
import triton
import triton.language as tl

SITES = 128  # sites per program
MOST = tl.constexpr(255)  # limit of samples counted in bytes before they are added to the totals


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add 1 to ``totals[n, i, labels[n, i, s]]``; labels (n, S, R) may have any strides."""
    n_images, n_sites, n_samples = labels.shape
    grid = (n_images * -(-(stop - begin) // SITES),)
    _votes[grid](labels, labels.stride(), totals, begin, stop, n_sites, n_samples, totals.shape[2], SITES)


@triton.jit(do_not_specialize=["begin", "stop"])
def _votes(labels, strides, totals, begin, stop, n_sites, n_samples, N_LABELS: tl.constexpr, SITES: tl.constexpr):
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = (begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)).to(tl.int64)
    inside, own = site < stop, labels + n * strides[0] + site * strides[1]
    first = 0
    while first < n_samples:
        last = tl.minimum(first + MOST, n_samples)
        for g in range((N_LABELS + 7) // 8):
            counts = tl.zeros([SITES], tl.int64)  # of labels 8g..8g + 7, one per byte
            r = first
            while r < last:
                label = tl.load(own + r * strides[2], mask=inside, other=0).to(tl.int64) - g * 8
                counts += tl.where((label >= 0) & (label < 8), tl.full([SITES], 1, tl.int64) << ((label & 7) * 8), 0)
                r += 1
            for m in tl.static_range(8):
                there = inside & (g * 8 + m < N_LABELS)
                place = totals + (n * n_sites + site) * N_LABELS + g * 8 + m
                count = ((counts >> (m * 8)) & 255).to(totals.dtype.element_ty)
                tl.store(place, tl.load(place, mask=there, other=0) + count, mask=there)
        first += MOST
