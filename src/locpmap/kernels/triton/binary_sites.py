"""Likelihoods of sites with two labels, one sample and few kinds of edges: all sums stay in registers.

With two labels only the margin ``score(1) - score(0)`` matters, and the derivative by it: one number per site.  Lanes
go along the sites of as many images as fill them; a program takes a range of (tile of lanes, group of images), so it
reads where the neighbours are once for many images.  The last program to end adds up the sums of all, in their order.

Every feature and label is read once, but for those at the borders of tiles.
"""

from __future__ import annotations

from math import gcd

import torch
import triton
import triton.language as tl

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.binary_margins import (
    ROUND,
    add_totals,
    counter,
    is_last,
    keep_sums,
    keep_totals,
    margin_weights,
    margins,
    read_around,
    resident,
    zeros,
)
from locpmap.kernels.triton.slot_rows import slot_rows

MAX_UNARY, MAX_PAIR_SUMS = 8, 32  # that a thread has registers for
LANES, WARPS = 256, 8
# Programs that a processor (SM) holds at a time, and the registers that leaves to a thread: many hide latency better.
SHARES = {torch.float32: (3, 80), torch.float64: (2, 128)}
MAX_TOGETHER = 2**20  # sites
MANY_IMAGES = 100
STEPS_PER_SUM = 256  # sites that a thread adds up before the sums go to double precision
FACTORS = 64  # between 1 and 2, whose product a thread makes before it takes the logarithm


def is_binary(data: Observations, tables: torch.Tensor, n_samples: int) -> bool:
    """Whether this is the kernel to take."""
    n_groups, n_features, n_labels, _ = tables.shape
    if n_labels != 2 or n_samples != 1 or n_features == 0 or data.unary.shape[2] > MAX_UNARY:
        return False
    rows = len(slot_rows(data, n_groups).kinds)
    return 0 < 2 * rows * n_features <= MAX_PAIR_SUMS


def add_binary_sites(
    data: Observations,
    labels: torch.Tensor,
    near: torch.Tensor,
    site_weights: torch.Tensor,
    weights: torch.Tensor,
    tables: torch.Tensor,
    value: torch.Tensor,
    slope: torch.Tensor,
    table_slope: torch.Tensor,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """As :func:`~locpmap.kernels.triton.site_likelihood.site_likelihood`; ``near`` are the samples, (N, S, 1)."""
    if hi <= lo or stop <= begin:
        return
    n_groups, n_features = tables.shape[:2]
    rows = slot_rows(data, n_groups)
    n_unary = data.unary.shape[2]
    per_processor, registers = SHARES[data.unary.dtype]
    # So many images together fill whole tiles; where there are many tiles, it does not matter.
    together = min(LANES // gcd(stop - begin, LANES), hi - lo, max(1, MAX_TOGETHER // (stop - begin)))
    n_tiles = triton.cdiv(together * (stop - begin), LANES)
    n_steps = triton.cdiv(hi - lo, together)
    n_programs = min(resident(value.device, per_processor), n_tiles * n_steps)
    n_sums = 2 + n_unary + 2 * len(rows.kinds) * n_features
    sums = torch.empty(n_programs * n_sums, dtype=torch.float64, device=value.device)
    axes = ((data.pairwise, 0), (site_weights, 0), (site_weights, 1))
    strides = (part.stride(axis) if part.shape[axis] > 1 else 0 for part, axis in axes)
    # Shifts are part of the compiled code: that pays where many images have one size.
    shifts = rows.shifts if hi - lo >= MANY_IMAGES else None
    _add_binary_sites[(n_programs,)](
        *(
            data.unary,
            data.pairwise,
            *(shifts[3:] if shifts else rows[1:3]),
            labels,
            near,
            site_weights,
            weights,
            tables,
        ),
        *(sums, counter(value.device), value, slope, table_slope),
        *(lo, hi, begin, stop, together, n_tiles, n_steps, *strides, labels.shape[1]),
        KINDS=rows.kinds,
        N_ROWS=len(rows.kinds),
        SHIFTED=shifts is not None,
        NEAR=shifts.near if shifts else (),
        LINES=shifts.line if shifts else (),
        EDGES=shifts.edge if shifts else (),
        PAIR_EDGE=data.pairwise.stride(1) if data.pairwise.shape[1] > 1 else 0,
        ALIKE=site_weights.numel() == 1,
        N_GROUPS=n_groups,
        N_FEATURES=n_features,
        N_UNARY=n_unary,
        SUMS=triton.next_power_of_2(n_sums),
        LEVELS=triton.next_power_of_2(n_sums).bit_length() - 1,
        ENTRIES=triton.next_power_of_2(max(tables.numel(), weights.numel())),
        ROUNDS=triton.cdiv(resident(value.device, per_processor), ROUND),
        ROUND=ROUND,
        STEPS_PER_SUM=STEPS_PER_SUM,
        FACTORS=FACTORS,
        LANES=LANES,
        num_warps=WARPS,
        maxnreg=registers,
    )


@triton.jit(do_not_specialize=["lo", "hi", "begin", "stop", "together", "n_tiles", "n_steps"])
def _add_binary_sites(
    unary_ptr,
    pairwise_ptr,
    neighbour_ptr,
    edge_ptr,
    labels_ptr,
    near_ptr,
    importance_ptr,
    weights_ptr,
    tables_ptr,
    sums_ptr,
    arrived_ptr,
    value_ptr,
    slope_ptr,
    table_slope_ptr,
    lo,
    hi,
    begin,
    stop,
    together,
    n_tiles,
    n_steps,
    pair_image,
    importance_image,
    importance_site,
    n_sites,
    KINDS: tl.constexpr,
    N_ROWS: tl.constexpr,
    SHIFTED: tl.constexpr,
    NEAR: tl.constexpr,
    LINES: tl.constexpr,
    EDGES: tl.constexpr,
    PAIR_EDGE: tl.constexpr,
    ALIKE: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    SUMS: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROUND: tl.constexpr,
    STEPS_PER_SUM: tl.constexpr,
    FACTORS: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    N_SUMS: tl.constexpr = 2 + N_UNARY + 2 * N_ROWS * N_FEATURES
    by_unary, by_pair = margin_weights(weights_ptr, tables_ptr, dtype, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY)
    importance = tl.load(importance_ptr) if ALIKE else 1.0  # of all sites alike
    own_sums = sums_ptr + tl.program_id(0) * N_SUMS
    work = n_tiles.to(tl.int64) * n_steps
    at = work * tl.program_id(0) // tl.num_programs(0)
    end = work * (tl.program_id(0) + 1) // tl.num_programs(0)
    sums, added, is_first = zeros(dtype, N_SUMS, LANES), 0, 1
    while at < end:
        lane = (at // n_steps).to(tl.int32) * LANES + tl.arange(0, LANES)
        image, i = lane // (stop - begin), begin + lane % (stop - begin)
        real = image < together
        here = image.to(tl.int64) * n_sites + i
        near, edge, there = (), (), ()
        if SHIFTED:
            present = tl.load(neighbour_ptr + i, mask=real, other=0)
            for r in tl.static_range(N_ROWS):
                base = tl.load(edge_ptr + LINES[r] * n_sites + i, mask=real, other=0).to(tl.int64) + EDGES[r]
                near += (here + NEAR[r],)
                edge += (image.to(tl.int64) * pair_image + base * PAIR_EDGE,)
                there += ((present >> r) & 1 != 0,)
        else:
            for r in tl.static_range(N_ROWS):
                j = tl.load(neighbour_ptr + r * n_sites + i, mask=real, other=-1)
                e = tl.load(edge_ptr + r * n_sites + i, mask=real, other=0).to(tl.int64)
                near += (image.to(tl.int64) * n_sites + j,)
                edge += (image.to(tl.int64) * pair_image + e * PAIR_EDGE,)
                there += (j >= 0,)
        step = (at % n_steps).to(tl.int32)
        last = tl.minimum(tl.minimum(n_steps, step + (end - at)), step + STEPS_PER_SUM).to(tl.int32)
        at += last - step
        added += last - step
        while step < last:
            until = tl.minimum(last, step + FACTORS)
            product = tl.full([LANES], 1.0, dtype)
            while step < until:
                n = lo + (step * together).to(tl.int64)  # of the first of the images that lanes go along
                inside = real & (n + image < hi)
                label = tl.load(labels_ptr + n * n_sites + here, mask=inside, other=-1)
                read = read_around(
                    unary_ptr + (n * n_sites + here) * N_UNARY,
                    pairwise_ptr + n * pair_image,
                    near_ptr + n * n_sites,
                    near,
                    edge,
                    there,
                    inside,
                    N_ROWS,
                    N_FEATURES,
                    N_UNARY,
                )
                margin, features = margins(read, by_unary, by_pair, N_ROWS, N_FEATURES, N_UNARY, LANES)
                smaller = tl.exp(-tl.abs(margin))  # the less likely label's share, to 1 of the other
                agree = (margin >= 0) == (label == 1)
                wrong = tl.where(agree, smaller, 1.0) / (1.0 + smaller)
                residual = tl.where(label == 1, -wrong, tl.where(label == 0, wrong, 0.0))
                loss = tl.where(agree, 0.0, tl.abs(margin))
                if ALIKE:
                    product *= tl.where(label >= 0, 1.0 + smaller, 1.0)
                else:
                    place = (n + image) * importance_image + i.to(tl.int64) * importance_site
                    own = tl.load(importance_ptr + place, mask=inside, other=0.0).to(dtype)
                    residual, loss = own * residual, own * (loss + tl.log(1.0 + smaller))
                new = (sums[0] + tl.where(label >= 0, loss, 0.0), sums[1] + residual)
                for s in tl.static_range(N_SUMS - 2):
                    new += (sums[s + 2] + residual * features[s],)
                sums = new
                step += 1
            first, rest = (sums[0] + tl.log(product),), sums[1:]
            sums = first + rest
        if (added >= STEPS_PER_SUM) | (at >= end):
            keep_sums(own_sums, sums, importance, is_first, N_SUMS, SUMS, LEVELS)
            sums, added, is_first = zeros(dtype, N_SUMS, LANES), 0, 0
    if is_last(arrived_ptr):
        keep_totals(sums_ptr, N_SUMS, SUMS, ROUNDS, ROUND)
        results = (value_ptr, slope_ptr, table_slope_ptr)
        add_totals(sums_ptr, *results, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY, ENTRIES)
