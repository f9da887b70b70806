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
    edge_features,
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
from locpmap.kernels.triton.keeping import kept_with
from locpmap.kernels.triton.label_codes import MAX_ROWS, has_label, has_one, label_codes
from locpmap.kernels.triton.slot_rows import slot_rows

MAX_READ = 16  # features of edges to other chains that a site needs
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
    n_groups, n_features = tables.shape[:2]
    if not has_margins(data, tables) or plan.joint[begin:stop].any():
        return []
    arrays = (plan.ptr, data.neighbour, data.group)
    families = kept_with(arrays, ("chains", begin, stop, n_groups), lambda: _chains(data, plan, n_groups, begin, stop))
    n_rows = [len(chains.kinds) for chains in families]
    return families if all(0 < n <= MAX_ROWS and n * n_features <= MAX_READ for n in n_rows) else []


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
    n_chains, sizes = len(chains.begin), sum_sizes(data, tables)
    together = min(LANES // gcd(n_chains, LANES), hi - lo, max(1, MAX_TOGETHER // n_chains))
    n_steps = triton.cdiv(hi - lo, together)
    work = triton.cdiv(together * n_chains, LANES) * n_steps
    most = resident(value.device, PER_PROCESSOR)
    n_programs = min(most, work)
    sums = torch.empty(n_programs * sizes["N_SUMS"], dtype=torch.float64, device=value.device)
    passed = torch.empty((hi - lo, labels.shape[1]), dtype=data.unary.dtype, device=value.device)
    _add_binary_chains[(n_programs,)](
        *(data.unary, data.pairwise, *chains[:4], chains.edge, label_codes(labels, labels, chains.neighbour)),
        *(image_weights, weights, tables, passed, sums, counter(value.device), value, slope, table_slope),
        *(lo, hi, together, n_steps, *divmod(work, n_programs), n_chains),
        *(chains.longest, max(1, SITES_PER_SUM // chains.longest)),
        *(data.pairwise.shape[1] if len(data.pairwise) > 1 else 0, int(len(image_weights) > 1), labels.shape[1]),
        KINDS=chains.kinds,
        INNER_KIND=chains.inner_kind,
        N_ROWS=len(chains.kinds),
        **sizes,
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
def _read_site(
    unary_ptr,
    pairwise_ptr,
    site_ptr,
    inner_edge_ptr,
    edge_ptr,
    codes_ptr,
    n_edges,
    n_sites,
    n,
    begin,
    length,
    t,
    N_ROWS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    PAIR_EDGE: tl.constexpr,
):
    """Site t of a chain, its code (0 where the chain is not as long), the edge to the site before, and all features."""
    there = (t >= 0) & (t < length)
    i = tl.load(site_ptr + begin + t, mask=there, other=0)
    codes = tl.load(codes_ptr + n * n_sites + i, mask=there, other=0).to(tl.int32)
    before = tl.load(inner_edge_ptr + i)
    pairwise, edge = pairwise_ptr + n * n_edges * N_FEATURES, ()
    for r in tl.static_range(N_ROWS):
        edge += (pairwise + tl.maximum(tl.load(edge_ptr + r * n_sites + i), 0) * PAIR_EDGE,)
    features = read_around(unary_ptr + (n * n_sites + i) * N_UNARY, edge, N_ROWS, N_FEATURES, N_UNARY)
    links = edge_features(pairwise + tl.maximum(before, 0) * PAIR_EDGE, N_FEATURES)
    return i, codes, before, features, links


@triton.jit
def _link(links, by, INNER_KIND: tl.constexpr, N_GROUPS: tl.constexpr, N_FEATURES: tl.constexpr, N_UNARY: tl.constexpr):
    """What the edge to the site before adds: to this site's margin, to the other's, and to both where the label at the
    other end is 1.
    """
    FIRST: tl.constexpr = 1 + N_UNARY + 3 * (INNER_KIND % N_GROUPS) * N_FEATURES
    END: tl.constexpr = INNER_KIND // N_GROUPS
    own, other, ones = by[FIRST + END] * links[0], by[FIRST + 1 - END] * links[0], by[FIRST + 2] * links[0]
    for f in tl.static_range(1, N_FEATURES):
        own += by[FIRST + 3 * f + END] * links[f]
        other += by[FIRST + 3 * f + 1 - END] * links[f]
        ones += by[FIRST + 3 * f + 2] * links[f]
    return own, other, ones


@triton.jit
def _plus_links(
    sums,
    pulls,
    links,
    INNER_KIND: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    N_SUMS: tl.constexpr,
):
    """Sums plus those of edges within chains, from derivatives by the three of ``_link``."""
    FIRST: tl.constexpr = 2 + N_UNARY + 3 * (INNER_KIND % N_GROUPS) * N_FEATURES
    more = ()
    for s in tl.static_range(N_SUMS):
        if s < FIRST or s >= FIRST + 3 * N_FEATURES:
            more += (sums[s],)
        elif (s - FIRST) % 3 < 2:  # of the first end, then of the second: the later site is the one or the other
            more += (sums[s] + pulls[((s - FIRST) % 3 + INNER_KIND // N_GROUPS) % 2] * links[(s - FIRST) // 3],)
        else:
            more += (sums[s] + pulls[2] * links[(s - FIRST) // 3],)
    return more


@triton.jit(
    do_not_specialize=["lo", "hi", "together", "n_steps", "each", "extra", "n_chains", "longest", "steps_per_sum"]
)
def _add_binary_chains(
    unary_ptr,
    pairwise_ptr,
    begin_ptr,
    length_ptr,
    site_ptr,
    inner_edge_ptr,
    edge_ptr,
    codes_ptr,
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
    n_steps,
    each,  # pairs of tile and step that a program takes; the first ``extra`` programs take one more
    extra,
    n_chains,
    longest,
    steps_per_sum,
    n_edges,
    importance_image,
    n_sites,
    KINDS: tl.constexpr,
    INNER_KIND: tl.constexpr,
    N_ROWS: tl.constexpr,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_UNARY: tl.constexpr,
    N_SUMS: tl.constexpr,
    LEVELS: tl.constexpr,
    ENTRIES: tl.constexpr,
    PAIR_EDGE: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROUND: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype: tl.constexpr = unary_ptr.dtype.element_ty
    by = margin_weights(weights_ptr, tables_ptr, dtype, N_GROUPS, N_FEATURES, N_UNARY)
    given = (unary_ptr, pairwise_ptr, site_ptr, inner_edge_ptr, edge_ptr, codes_ptr, n_edges, n_sites)
    own_sums = sums_ptr + tl.program_id(0) * N_SUMS
    at = tl.program_id(0) * each + tl.minimum(tl.program_id(0), extra)
    end = at + each + (tl.program_id(0) < extra)
    sums, held, is_first = zeros(dtype, N_SUMS, LANES), 0, 1
    while at < end:
        lane = at // n_steps * LANES + tl.arange(0, LANES)
        image, chain = lane // n_chains, lane % n_chains
        n = (lo + at % n_steps * together + image).to(tl.int64)
        real = (image < together) & (n < hi)
        n = tl.minimum(n, hi - 1)  # lanes beyond the last read what is there
        begin = tl.load(begin_ptr + chain)
        length = tl.where(real, tl.load(length_ptr + chain), 0)
        importance = tl.load(importance_ptr + n * importance_image).to(dtype)
        passed = passed_ptr + (n - lo) * n_sites
        odds, alive, t = tl.zeros([LANES], dtype), length < 0, 0
        # A site's numbers are asked for while the one before it is worked on.
        site = _read_site(*given, n, begin, length, t, N_ROWS, N_FEATURES, N_UNARY, PAIR_EDGE)
        while t < longest:
            i, codes, before, read, links = site
            t += 1
            site = _read_site(*given, n, begin, length, t, N_ROWS, N_FEATURES, N_UNARY, PAIR_EDGE)
            margin, features = margins(codes, read, by, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY, LANES)
            own, other, ones = _link(links, by, INNER_KIND, N_GROUPS, N_FEATURES, N_UNARY)
            joined = (before >= 0) & has_label(codes, 0) & alive
            # log Σ_a exp(..) for label 1 here, less that for label 0, over the labels a before.
            message = own + _soft_plus(odds + other + ones) - _soft_plus(odds + other)
            odds = margin + tl.where(joined, message, 0.0)
            alive = has_label(codes, 0)
            tl.store(passed + i, odds, mask=alive)
        after, true_after = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)  # p(1), 1{true is 1} of the site after
        linked = length < 0
        edge_after = zeros(dtype, N_FEATURES, LANES)  # features of the edge to it
        shift0, shift1 = tl.zeros([LANES], dtype), tl.zeros([LANES], dtype)
        site = _read_site(*given, n, begin, length, t - 1, N_ROWS, N_FEATURES, N_UNARY, PAIR_EDGE)
        while t > 0:
            i, codes, before, read, links = site
            t -= 1
            site = _read_site(*given, n, begin, length, t - 1, N_ROWS, N_FEATURES, N_UNARY, PAIR_EDGE)
            margin, features = margins(codes, read, by, KINDS, N_ROWS, N_GROUPS, N_FEATURES, N_UNARY, LANES)
            valid, is_one = has_label(codes, 0), has_one(codes, 0)
            odds, true = tl.load(passed + i, mask=valid, other=0.0), is_one.to(dtype)
            linked = linked & valid
            shift0, shift1 = tl.where(linked, shift0, 0.0), tl.where(linked, shift1, 0.0)
            given0, given1 = _sigmoid(odds + shift0), _sigmoid(odds + shift1)  # p(1 | label after)
            both = after * given1
            node = both + (1 - after) * given0
            known = odds + tl.where(true_after > 0, shift1, shift0)
            loss = tl.where(valid, importance * _soft_plus(tl.where(is_one, -known, known)), 0.0)
            residual = tl.where(valid, importance * (node - true), 0.0)
            sums = plus_slopes(sums, loss, residual, features, N_SUMS)
            weight = tl.where(linked, importance, 0.0)
            pulls = (weight * (after - true_after), weight * (node - true), weight * (both - true_after * true))
            sums = _plus_links(sums, pulls, edge_after, INNER_KIND, N_GROUPS, N_FEATURES, N_UNARY, N_SUMS)
            after, true_after, linked, edge_after = node, true, (before >= 0) & valid, links
            own, shift0, ones = _link(links, by, INNER_KIND, N_GROUPS, N_FEATURES, N_UNARY)
            shift1 = shift0 + ones
        at += 1
        held += 1
        if (held >= steps_per_sum) | (at >= end):
            keep_sums(own_sums, sums, 1.0, is_first, N_SUMS, LEVELS)
            sums, held, is_first = zeros(dtype, N_SUMS, LANES), 0, 0
    if is_last(arrived_ptr):
        results = (value_ptr, slope_ptr, table_slope_ptr)
        add_totals(sums_ptr, *results, N_GROUPS, N_FEATURES, N_UNARY, N_SUMS, LEVELS, ENTRIES, ROUNDS, ROUND)
