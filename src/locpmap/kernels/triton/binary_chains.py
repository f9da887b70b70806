"""Likelihoods of chains with two labels and few kinds of edges: a lane is a chain, and all sums stay in registers.

On the way along a chain the log-odds of a site's label are passed on, given all before it and all outside the chain.
On the way back they turn into marginals: given the label after it, a site's log-odds are shifted by the edge between.
Features are read on both ways.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.binary_margins import (
    ROUND,
    add_totals,
    counter,
    entry_of,
    is_last,
    keep_sums,
    keep_totals,
    margin_weights,
    margins,
    read_around,
    resident,
    table_entry,
    zeros,
)
from locpmap.kernels.triton.keeping import kept_with
from locpmap.kernels.triton.slot_rows import slot_rows

MAX_UNARY, MAX_PAIR_SUMS = 8, 32  # that a thread has registers for
LANES, WARPS, PER_PROCESSOR, MAX_REGISTERS = 128, 4, 4, 128
MAX_TOGETHER = 2**16  # chains
SITES_PER_SUM = 256  # that a thread adds up before the sums go to double precision


class Chains(NamedTuple):
    """B chains of one family on the device; rows of neighbours (R, S) are those outside a site's chain."""

    begin: torch.Tensor  # (B,) int32: a chain's sites are site[begin:begin + length]
    length: torch.Tensor  # (B,) int32
    site: torch.Tensor
    inner_edge: torch.Tensor  # (S,) int32: between a site and the one before, or -1
    neighbour: torch.Tensor  # (R, S) int32, or -1
    edge: torch.Tensor  # (R, S) int32
    kinds: tuple[int, ...]  # of the rows
    inner_kind: int
    longest: int


def chains_of(data: Observations, plan: BlockPlan, tables: torch.Tensor, begin: int, stop: int) -> list[Chains]:
    """Blocks begin..stop as chains, family by family; none where this is not the kernel to take."""
    n_groups, n_features, n_labels, _ = tables.shape
    if n_labels != 2 or n_features == 0 or data.unary.shape[2] > MAX_UNARY or plan.joint[begin:stop].any():
        return []
    arrays = (plan.ptr, data.neighbour, data.group)
    families = kept_with(arrays, ("chains", begin, stop, n_groups), lambda: _chains(data, plan, n_groups, begin, stop))
    fit = all(0 < 2 * len(chains.kinds) * n_features <= MAX_PAIR_SUMS for chains in families)
    return families if fit else []


def _chains(data: Observations, plan: BlockPlan, n_groups: int, begin: int, stop: int) -> list[Chains]:
    position = np.arange(len(plan.site)) - np.repeat(plan.ptr[:-1], np.diff(plan.ptr))
    if (plan.parent != position - 1).any():
        return []
    rows = slot_rows(data, n_groups)
    near, row_edge = rows.neighbour.cpu().numpy(), rows.edge.cpu().numpy()
    edge, end, group = (array.cpu().numpy() for array in (data.edge, data.end, data.group))
    families: list[Chains] = []
    for home in plan.block_of:
        blocks = np.arange(begin, stop)
        blocks = blocks[home[plan.site[plan.ptr[blocks]]] == blocks]
        if len(blocks) == 0:
            continue
        inner = np.concatenate([np.arange(plan.ptr[b] + 1, plan.ptr[b + 1]) for b in blocks])
        slots = plan.parent_slot[inner]
        kinds = np.unique(group[edge[slots]] + n_groups * end[slots])
        if len(kinds) > 1:
            return []
        inner_edge = np.full(len(home), -1, np.int32)
        inner_edge[plan.site[inner]] = edge[slots]
        outside = np.where((near >= 0) & (home[near] != home), near, -1)
        some = np.flatnonzero((outside >= 0).any(axis=1))
        parts = (plan.ptr[blocks], np.diff(plan.ptr)[blocks], plan.site, inner_edge, outside[some], row_edge[some])
        placed = [torch.from_numpy(part.astype(np.int32)).to(data.indptr.device) for part in parts]
        outer = tuple(rows.kinds[r] for r in some)
        inner_kind, longest = int(kinds[0]) if len(kinds) else 0, int(parts[1].max())
        families.append(Chains._make([*placed, outer, inner_kind, longest]))
    return families


def add_binary_chains(
    data: Observations,
    chains: Chains,
    labels: torch.Tensor,
    image_weights: torch.Tensor,
    weights: torch.Tensor,
    tables: torch.Tensor,
    value: torch.Tensor,
    slope: torch.Tensor,
    table_slope: torch.Tensor,
    lo: int,
    hi: int,
) -> None:
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and all chains of a family."""
    (n_groups, n_features), n_chains, n_unary = tables.shape[:2], len(chains.begin), data.unary.shape[2]
    together = min(LANES // gcd(n_chains, LANES), hi - lo, max(1, MAX_TOGETHER // n_chains))
    n_tiles, n_steps = triton.cdiv(together * n_chains, LANES), triton.cdiv(hi - lo, together)
    most = resident(value.device, PER_PROCESSOR)
    n_programs = min(most, n_tiles * n_steps)
    n_sums = 2 + n_unary + 2 * len(chains.kinds) * n_features + 3 * n_features
    sums = torch.empty(n_programs * n_sums, dtype=torch.float64, device=value.device)
    passed = torch.empty((hi - lo, labels.shape[1]), dtype=data.unary.dtype, device=value.device)
    strides = (data.pairwise.stride(axis) if data.pairwise.shape[axis] > 1 else 0 for axis in (0, 1))
    _add_binary_chains[(n_programs,)](
        *(data.unary, data.pairwise, *chains[:6], labels, image_weights, weights, tables, passed),
        *(sums, counter(value.device), value, slope, table_slope),
        *(lo, hi, together, n_tiles, n_steps, n_chains, chains.longest, max(1, SITES_PER_SUM // chains.longest)),
        *(*strides, int(len(image_weights) > 1), labels.shape[1]),
        KINDS=chains.kinds,
        INNER_KIND=chains.inner_kind,
        N_ROWS=len(chains.kinds),
        N_GROUPS=n_groups,
        N_FEATURES=n_features,
        N_UNARY=n_unary,
        SUMS=triton.next_power_of_2(n_sums),
        LEVELS=triton.next_power_of_2(n_sums).bit_length() - 1,
        ENTRIES=triton.next_power_of_2(max(tables.numel(), weights.numel())),
        ROUNDS=triton.cdiv(most, ROUND),
        ROUND=ROUND,
        LANES=LANES,
        num_warps=WARPS,
        maxnreg=MAX_REGISTERS,
    )


@triton.jit
def _sigmoid(x):
    smaller = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, smaller) / (1.0 + smaller)


@triton.jit
def _soft_plus(x):
    """``log(1 + exp(x))``."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def _inner_scores(pairwise, inner, edge, there, N_FEATURES: tl.constexpr):
    """Features of the edges before sites, a tuple, and their scores: (own, other) = (0, 0), (0, 1), (1, 0), (1, 1)."""
    features = ()
    scores = (tl.zeros(there.shape, inner[0].dtype),) * 4
    for f in tl.static_range(N_FEATURES):
        feature = tl.load(pairwise + edge + f, mask=there, other=0.0)
        features += (feature,)
        more = ()
        for s in tl.static_range(4):
            more += (scores[s] + feature * inner[4 * f + s],)
        scores = more
    return features, scores


@triton.jit
def _read_site(
    unary_ptr,
    pairwise_ptr,
    inner_edge_ptr,
    neighbour_ptr,
    edge_ptr,
    labels_ptr,
    n,
    i,
    there,
    by_unary,
    by_pair,
    inner,
    pair_image,
    pair_edge,
    n_sites,
    N_ROWS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    LANES: tl.constexpr,
):
    """A site's label; its margin given all outside the chain, and what that is made of; whether there is an edge to the
    site before, its features, and its scores.
    """
    label = tl.load(labels_ptr + n * n_sites + i, mask=there, other=-1)
    near, edge, outside = (), (), ()
    for r in tl.static_range(N_ROWS):
        j = tl.load(neighbour_ptr + r * n_sites + i, mask=there, other=-1)
        e = tl.load(edge_ptr + r * n_sites + i, mask=there, other=0).to(tl.int64)
        near += (n * n_sites + j,)
        edge += (n * pair_image + e * pair_edge,)
        outside += (j >= 0,)
    unary = unary_ptr + (n * n_sites + i) * N_UNARY
    read = read_around(unary, pairwise_ptr, labels_ptr, near, edge, outside, there, N_ROWS, N_FEATURES, N_UNARY)
    margin, features = margins(read, by_unary, by_pair, N_ROWS, N_FEATURES, N_UNARY, LANES)
    before = tl.load(inner_edge_ptr + i, mask=there, other=-1)
    place = n * pair_image + tl.maximum(before, 0).to(tl.int64) * pair_edge
    inner_features, scores = _inner_scores(pairwise_ptr, inner, place, before >= 0, N_FEATURES)
    return label, margin, features, (before >= 0) & (label >= 0), inner_features, scores


@triton.jit(do_not_specialize=["lo", "hi", "together", "n_tiles", "n_steps", "n_chains", "longest", "steps_per_sum"])
def _add_binary_chains(
    unary_ptr,
    pairwise_ptr,
    begin_ptr,
    length_ptr,
    site_ptr,
    inner_edge_ptr,
    neighbour_ptr,
    edge_ptr,
    labels_ptr,
    importance_ptr,
    weights_ptr,
    tables_ptr,
    passed_ptr,
    sums_ptr,
    arrived_ptr,
    value_ptr,
    slope_ptr,
    table_slope_ptr,
    lo,
    hi,
    together,
    n_tiles,
    n_steps,
    n_chains,
    longest,
    steps_per_sum,
    pair_image,
    pair_edge,
    importance_image,
    n_sites,
    KINDS: tl.constexpr,
    INNER_KIND: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    SUMS: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROUND: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    N_OUTER: tl.constexpr = N_UNARY + 2 * N_ROWS * N_FEATURES
    N_SUMS: tl.constexpr = 2 + N_OUTER + 3 * N_FEATURES
    by_unary, by_pair = margin_weights(weights_ptr, tables_ptr, dtype, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY)
    inner = ()
    for f in tl.static_range(N_FEATURES):
        for s in tl.static_range(4):
            entry = table_entry(INNER_KIND, f, s // 2, s % 2, N_GROUPS, N_FEATURES)
            inner += (tl.load(tables_ptr + entry).to(dtype),)
    own_sums = sums_ptr + tl.program_id(0) * N_SUMS
    work = n_tiles.to(tl.int64) * n_steps
    at = work * tl.program_id(0) // tl.num_programs(0)
    end = work * (tl.program_id(0) + 1) // tl.num_programs(0)
    sums, held, is_first = zeros(dtype, N_SUMS, LANES), 0, 1
    while at < end:
        lane = (at // n_steps).to(tl.int32) * LANES + tl.arange(0, LANES)
        image, chain = lane // n_chains, lane % n_chains
        n = lo + (at % n_steps) * together + image
        real = (image < together) & (n < hi)
        begin = tl.load(begin_ptr + chain, mask=real, other=0)
        length = tl.load(length_ptr + chain, mask=real, other=0)
        importance = tl.load(importance_ptr + n * importance_image, mask=real, other=0.0).to(dtype)
        passed = passed_ptr + (n - lo) * n_sites
        odds, alive, t = tl.zeros([LANES], dtype), real & (length < 0), 0
        while t < longest:
            there = real & (t < length)
            i = tl.load(site_ptr + begin + t, mask=there, other=0)
            label, margin, features, joined, inner_features, scores = _read_site(
                unary_ptr,
                pairwise_ptr,
                inner_edge_ptr,
                neighbour_ptr,
                edge_ptr,
                labels_ptr,
                n,
                i,
                there,
                by_unary,
                by_pair,
                inner,
                pair_image,
                pair_edge,
                n_sites,
                N_ROWS,
                N_FEATURES,
                N_UNARY,
                LANES,
            )
            # log Σ_a exp(..) for label 1 here, less that for label 0, over the labels a before.
            message = scores[2] + _soft_plus(odds + scores[3] - scores[2])
            message -= scores[0] + _soft_plus(odds + scores[1] - scores[0])
            odds = margin + tl.where(joined & alive, message, 0.0)
            alive = label >= 0
            tl.store(passed + i, odds, mask=alive)
            t += 1
        after, true_after = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)  # p(1), 1{true is 1} of the site after
        linked = real & (length < 0)
        links = zeros(dtype, N_FEATURES, LANES)  # features of the edge to it
        shift0, shift1 = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)
        while t > 0:
            t -= 1
            there = real & (t < length)
            i = tl.load(site_ptr + begin + t, mask=there, other=0)
            label, margin, features, joined, inner_features, scores = _read_site(
                unary_ptr,
                pairwise_ptr,
                inner_edge_ptr,
                neighbour_ptr,
                edge_ptr,
                labels_ptr,
                n,
                i,
                there,
                by_unary,
                by_pair,
                inner,
                pair_image,
                pair_edge,
                n_sites,
                N_ROWS,
                N_FEATURES,
                N_UNARY,
                LANES,
            )
            valid = label >= 0
            odds = tl.load(passed + i, mask=valid, other=0.0)
            true = (label == 1).to(dtype)
            linked = linked & valid
            shift0, shift1 = tl.where(linked, shift0, 0.0), tl.where(linked, shift1, 0.0)
            given0, given1 = _sigmoid(odds + shift0), _sigmoid(odds + shift1)  # p(1 | label after)
            both, only_after, only_here = after * given1, after * (1 - given1), (1 - after) * given0
            node = both + only_here
            known = odds + tl.where(true_after > 0, shift1, shift0)
            loss = _soft_plus(tl.where(label == 1, -known, known))
            residual = tl.where(valid, importance * (node - true), 0.0)
            new = (sums[0] + tl.where(valid, importance * loss, 0.0), sums[1] + residual)
            for s in tl.static_range(N_OUTER):
                new += (sums[s + 2] + residual * features[s],)
            weight = tl.where(linked, importance, 0.0)
            for f in tl.static_range(N_FEATURES):
                pull = weight * links[f]
                new += (sums[2 + N_OUTER + 3 * f] + pull * (both - true_after * true),)
                new += (sums[3 + N_OUTER + 3 * f] + pull * (only_after - true_after * (1 - true)),)
                new += (sums[4 + N_OUTER + 3 * f] + pull * (only_here - (1 - true_after) * true),)
            sums = new
            after, true_after, linked, links = node, true, joined, inner_features
            shift0, shift1 = scores[1] - scores[0], scores[3] - scores[2]
        at += 1
        held += 1
        if (held >= steps_per_sum) | (at >= end):
            keep_sums(own_sums, sums, 1.0, is_first, N_SUMS, SUMS, LEVELS)
            sums, held, is_first = zeros(dtype, N_SUMS, LANES), 0, 0
    if is_last(arrived_ptr):
        keep_totals(sums_ptr, N_SUMS, SUMS, ROUNDS, ROUND)
        results = (value_ptr, slope_ptr, table_slope_ptr)
        add_totals(sums_ptr, *results, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY, ENTRIES)
        tl.debug_barrier()  # other threads may read what these stored
        place = tl.arange(0, ENTRIES)
        alike, own, other = entry_of(place, INNER_KIND, N_GROUPS, N_FEATURES)
        totals = sums_ptr + 2 + N_OUTER + 3 * ((place // 4) % N_FEATURES)
        slope = tl.load(table_slope_ptr + place, mask=alike, other=0.0)
        for s in tl.static_range(3):  # labels (1, 1), (1, 0), (0, 1); with (0, 0) they add up to 0
            part = tl.load(totals + s, mask=alike, other=0.0)
            mine = tl.where(own == 1, 1 - other, 2) == s
            slope += tl.where((own == 0) & (other == 0), -part, tl.where(mine, part, 0.0))
        tl.debug_barrier()  # all have been read
        tl.store(table_slope_ptr + place, slope, mask=alike)
