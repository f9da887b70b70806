"""Likelihoods of sites with two labels, one sample and few kinds of edges: all sums stay in registers.

With two labels only the margin ``score(1) - score(0)`` matters, and the derivative by it: one number per site.  Lanes
go along the sites of as many images as fill them; a program takes a range of (tile of lanes, group of images), so it
reads where the neighbours are once for many images.  The last program to end adds up the sums of all, in their order.

The labels at and around a site come as one code.  Every feature and code is read from memory once, but for edges at
the borders of tiles.  To keep memory busy, much has to be under way: a thread asks for all that its next few sites need
while it works on the last few.  That has to be in another turn of the loop: within one, the compiler puts each load
next to its use, and a thread waits for one after another.
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
    has_margins,
    is_last,
    keep_sums,
    margin_weights,
    margins,
    plus_slopes,
    read_around,
    resident,
    sum_sizes,
    zeros,
)
from locpmap.kernels.triton.label_codes import MAX_ROWS, has_label, has_one, label_codes
from locpmap.kernels.triton.slot_rows import slot_rows

MAX_READ = 16  # features of edges that a site needs
LANES, WARPS, PER_PROCESSOR, REGISTERS = 256, 8, 2, 128
MAX_AHEAD, OTHER_REGISTERS = 3, 48  # sites that a thread asks for at once, in registers that nothing else needs
MAX_TOGETHER = 2**20  # sites
MANY_IMAGES = 100
STEPS_PER_SUM = 64  # after which the sums go to double precision
FACTORS = 16  # steps, between whose logarithms a thread makes the product of numbers between 1 and 2
LOG2_E = tl.constexpr(1.4426950408889634)


def is_binary(data: Observations, tables: torch.Tensor, n_samples: int) -> bool:
    """Whether this is the kernel to take."""
    if n_samples != 1 or not has_margins(data, tables):
        return False
    n_groups, n_features = tables.shape[:2]
    n_rows = len(slot_rows(data, n_groups).kinds)
    return 0 < n_rows <= MAX_ROWS and n_rows * n_features <= MAX_READ


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
    rows, sizes = slot_rows(data, tables.shape[0]), sum_sizes(data, tables)
    n_rows, n_sites = rows.neighbour.shape
    n_edges = data.pairwise.shape[1] if len(data.pairwise) > 1 else 0
    # So many images together fill whole tiles; where there are many tiles, it does not matter.
    together = min(LANES // gcd(stop - begin, LANES), hi - lo, max(1, MAX_TOGETHER // (stop - begin)))
    words = data.unary.itemsize // 4
    spare = REGISTERS - OTHER_REGISTERS - 2 * words * sizes["N_SUMS"]
    fit = spare // (words * (1 + data.unary.shape[2] + n_rows * tables.shape[1]))
    ahead = max(1, min(MAX_AHEAD, fit, (hi - lo) // together))
    n_steps = triton.cdiv(hi - lo, ahead * together)
    work = triton.cdiv(together * (stop - begin), LANES) * n_steps
    most = resident(value.device, PER_PROCESSOR)
    n_programs = min(most, work)
    sums = torch.empty(n_programs * sizes["N_SUMS"], dtype=torch.float64, device=value.device)
    strides = (site_weights.stride(axis) if site_weights.shape[axis] > 1 else 0 for axis in (0, 1))
    _add_binary_sites[(n_programs,)](
        *(data.unary, data.pairwise, rows.edge, label_codes(labels, near, rows.neighbour)),
        *(site_weights, weights, tables),
        *(sums, counter(value.device), value, slope, table_slope),
        *(lo, hi, begin, stop, together, n_steps, *divmod(work, n_programs), n_edges, *strides, n_sites),
        KINDS=rows.kinds,
        N_ROWS=n_rows,
        # How far apart things are is part of the compiled code where that pays: many images have one size.
        APART=(together * n_sites, together * n_edges) if hi - lo >= MANY_IMAGES else None,
        ALIKE=site_weights.numel() == 1,
        **sizes,
        ROUNDS=triton.cdiv(most, ROUND),
        ROUND=ROUND,
        STEPS_PER_SUM=STEPS_PER_SUM,
        FACTORS=FACTORS,
        AHEAD=ahead,
        LANES=LANES,
        num_warps=WARPS,
        maxnreg=REGISTERS,
    )


@triton.jit
def _read_sites(
    unary_ptr,
    pairwise_ptr,
    codes_ptr,
    importance_ptr,
    lo,
    hi,
    together,
    n_edges,
    n_sites,
    importance_image,
    importance_site,
    i,
    number,
    edge,
    step,
    APART: tl.constexpr,
    ALIKE: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """What is needed of sites i, the images' ``number`` given, in a step, for each of AHEAD: codes, weights, features.

    The last images of all go along with some of the step before; those, and any beyond, have code 0.
    """
    wanted = lo + step * AHEAD * together
    n = tl.minimum(wanted, hi - AHEAD * together)
    image = tl.minimum(number, together - 1)  # lanes beyond the last read what is there
    here = n.to(tl.int64) * n_sites + (image * n_sites + i)
    pairwise = pairwise_ptr + n.to(tl.int64) * n_edges * N_FEATURES
    sites_apart = together * n_sites if APART is None else APART[0]
    edges_apart = together * n_edges if APART is None else APART[1]
    read = ()
    for a in tl.static_range(AHEAD):
        is_new = (number < together) & (n + number + a * together >= wanted)
        codes = tl.load(codes_ptr + here + a * sites_apart, mask=is_new, other=0).to(tl.int32)
        weight = 1.0
        if not ALIKE:
            place = (n + image + a * together).to(tl.int64) * importance_image + i * importance_site
            weight = tl.load(importance_ptr + place).to(unary_ptr.dtype.element_ty)
        along = ()
        for r in tl.static_range(N_ROWS):
            along += (pairwise + (image * n_edges * N_FEATURES + edge[r]) + a * edges_apart * N_FEATURES,)
        unary = unary_ptr + here * N_UNARY + a * sites_apart * N_UNARY
        first, features = (codes, weight), read_around(unary, along, N_ROWS, N_FEATURES, N_UNARY)
        read += (first + features,)
    return read


@triton.jit(do_not_specialize=["lo", "hi", "begin", "stop", "together", "n_steps", "each", "extra"])
def _add_binary_sites(
    unary_ptr,
    pairwise_ptr,
    edge_ptr,
    codes_ptr,
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
    n_steps,
    each,  # pairs of tile and step that a program takes; the first ``extra`` programs take one more
    extra,
    n_edges,
    importance_image,
    importance_site,
    n_sites,
    KINDS: tl.constexpr,
    N_ROWS: tl.constexpr,
    APART: tl.constexpr,
    ALIKE: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    N_SUMS: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    PAIR_EDGE: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROUND: tl.constexpr,
    STEPS_PER_SUM: tl.constexpr,
    FACTORS: tl.constexpr,
    AHEAD: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    importance = tl.load(importance_ptr) if ALIKE else 1.0  # of all sites alike
    given = (unary_ptr, pairwise_ptr, codes_ptr, importance_ptr, lo, hi, together, n_edges, n_sites)
    given += (importance_image, importance_site)
    own_sums = sums_ptr + tl.program_id(0) * N_SUMS
    at = tl.program_id(0) * each + tl.minimum(tl.program_id(0), extra)
    end = at + each + (tl.program_id(0) < extra)
    sums, added, is_first = zeros(dtype, N_SUMS, LANES), 0, 1
    while at < end:
        lane = at // n_steps * LANES + tl.arange(0, LANES)
        i, number = begin + lane % (stop - begin), lane // (stop - begin)
        edge = ()
        for r in tl.static_range(N_ROWS):
            edge += (tl.maximum(tl.load(edge_ptr + r * n_sites + i), 0) * PAIR_EDGE,)
        step = at % n_steps
        last = tl.minimum(tl.minimum(n_steps, step + (end - at)), step + STEPS_PER_SUM)
        at += last - step
        added += last - step
        current = _read_sites(*given, i, number, edge, step, APART, ALIKE, N_ROWS, N_FEATURES, N_UNARY, AHEAD)
        # Here, so that all that a program begins with is under way at once.
        by = margin_weights(weights_ptr, tables_ptr, dtype, N_GROUPS, N_FEATURES, N_UNARY)
        while step < last:
            until = tl.minimum(last, step + FACTORS)
            product = tl.full([LANES], 1.0, dtype)
            while step < until:
                step += 1
                following = _read_sites(*given, i, number, edge, step, APART, ALIKE, N_ROWS, N_FEATURES, N_UNARY, AHEAD)
                for a in tl.static_range(AHEAD):
                    codes, weight = current[a][0], current[a][1]
                    margin, features = margins(
                        codes, current[a][2:], by, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY, LANES
                    )
                    is_one = has_one(codes, 0)
                    # By how much the other label is ahead; without a label, by nothing at all.
                    ahead = tl.where(has_label(codes, 0), tl.where(is_one, -margin, margin), float("-inf"))
                    smaller = tl.exp2(tl.abs(ahead) * -LOG2_E)  # the less likely label's share, to 1 of the other
                    wrong = tl.where(ahead > 0, 1.0, smaller) / (1.0 + smaller)
                    residual, loss = tl.where(is_one, -wrong, wrong), tl.maximum(ahead, 0.0)
                    if ALIKE:
                        product *= 1.0 + smaller
                    else:
                        residual, loss = weight * residual, weight * (loss + tl.log(1.0 + smaller))
                    sums = plus_slopes(sums, loss, residual, features, N_SUMS)
                current = following
            first, rest = (sums[0] + tl.log(product),), sums[1:]
            sums = first + rest
        if (added >= STEPS_PER_SUM) | (at >= end):
            keep_sums(own_sums, sums, importance, is_first, N_SUMS, LEVELS)
            sums, added, is_first = zeros(dtype, N_SUMS, LANES), 0, 0
    if is_last(arrived_ptr):
        results = (value_ptr, slope_ptr, table_slope_ptr)
        add_totals(sums_ptr, *results, N_GROUPS, N_FEATURES, N_UNARY, N_SUMS, LEVELS, ENTRIES, ROUNDS, ROUND)
