"""Conditional probabilities on a 4-connected grid with Potts weights: `conditionals` without lists of edges."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.reference import conditionals as reference
from locpmap.kernels.triton.potts_grid import Field, Lanes, images_apart, loads_around, support, weights

SITES = 128  # of a program
UNIT = tl.constexpr(reference.UNIT)


def grid_conditionals(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    labels: torch.Tensor,
    sums: torch.Tensor,
    begin: int,
    stop: int,
) -> None:
    """Add ``p(· | other labels)`` of sites begin..stop; unary (n, S, L), labels (n, S, R), sums (n, S, L) int64.

    Potts weights are (1|n, H, W-1) to the right and (1|n, H-1, W) down.  Samples lie side by side; there may be gaps
    between sites.  A lane holds all labels of a site: 32 at most.
    """
    (n_images, _, n_labels), n_samples = unary.shape, labels.shape[2]
    height, width = right.shape[1], down.shape[2]
    apart = labels.stride(1)
    field = Field(right, images_apart(right), down, images_apart(down), height, width, 1, apart, 0, 0, width)
    grid = (n_images * -(-(stop - begin) // SITES),)
    _grid_conditionals[grid](unary, field, labels, sums, begin, stop, n_samples, labels.stride(0), n_labels, SITES)


@triton.jit(do_not_specialize=["begin", "stop", "n_samples"])
def _grid_conditionals(
    unary_ptr,
    field,
    labels_ptr,
    sums_ptr,
    begin,
    stop,
    n_samples,
    image_apart,
    N_LABELS: tl.constexpr,
    SITES: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    per_image = (stop - begin + SITES - 1) // SITES
    n = (tl.program_id(0) // per_image).to(tl.int64)
    site = begin + (tl.program_id(0) % per_image) * SITES + tl.arange(0, SITES)
    row = site // field.width
    at = Lanes(site < stop, site, row, site - row * field.width, site, site)
    weight = weights(field, n, at, dtype)
    own = (n * field.height * field.width + site) * N_LABELS
    unary, total = (), ()
    for k in tl.static_range(N_LABELS):
        unary += (tl.load(unary_ptr + own + k, mask=at.inside, other=0.0),)
        total += (tl.zeros([SITES], tl.int64),)
    across, along = field.site_apart, field.width * field.site_apart
    y = labels_ptr + n * image_apart + site.to(tl.int64) * across
    r = 0
    while r < n_samples:
        near = loads_around(field, y + r, at, across, along, "")
        scores = ()
        top = tl.full([SITES], float("-inf"), dtype)
        for k in tl.static_range(N_LABELS):
            scores += (unary[k] + support(k, near, weight),)
            top = tl.maximum(top, scores[k])
        shares = ()
        mass = tl.zeros([SITES], dtype)
        for k in tl.static_range(N_LABELS):
            shares += (tl.exp(scores[k] - top),)
            mass += shares[k]
        more = ()
        for k in tl.static_range(N_LABELS):
            more += (total[k] + ((shares[k] / mass).to(tl.float64) * UNIT + 0.5).to(tl.int64),)
        total = more
        r += 1
    for k in tl.static_range(N_LABELS):
        place = sums_ptr + own + k
        tl.store(place, tl.load(place, mask=at.inside, other=0) + total[k], mask=at.inside)
