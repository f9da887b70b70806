"""Likelihoods of small blocks: all joint labellings, lanes along them, a block of an image at a time.

The derivative by the score of a joint labelling is its probability, less 1 where it is the true one; slopes are sums of
these over the labellings.  A void site has label 0 in each labelling that counts.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.triton.linear_scores import Sums, add_items, new_sums


def add_joint(
    arrays: tuple[Any, ...],
    sizes: tuple[int, ...],
    constants: dict[str, int],
    slope: torch.Tensor,
    lo: int,
    hi: int,
    first: int,
    last: int,
    longest: int,
) -> Sums:
    """The sums of blocks ``order[first:last]`` for images lo..hi."""
    n_tiles = (hi - lo) * (last - first)
    sums = new_sums(n_tiles, slope, arrays[-1])
    states = min(triton.next_power_of_2(constants["N_LABELS"] ** longest), max(1, 1024 // constants["LABELS"]))
    window = (lo, first, last - first, n_tiles)
    _add_joint[(len(sums.losses),)](*arrays, sums, *window, *sizes, **constants, STATES=states)
    return sums


@triton.jit
def _edge_scores(
    data, tables_ptr, pairwise, pair_edge, slot, own, other, N_FEATURES: tl.constexpr, N_LABELS: tl.constexpr
):
    """Scores (STATES, 1) of labels ``own`` and ``other`` on the edge at a slot, one for all."""
    edge = tl.load(data.edge + slot).to(tl.int64)
    cell = tl.where(tl.load(data.end + slot) == 0, own * N_LABELS + other, other * N_LABELS + own)
    table = tables_ptr + tl.load(data.group + edge).to(tl.int64) * N_FEATURES * N_LABELS * N_LABELS
    scores = tl.zeros(own.shape, tables_ptr.dtype.element_ty)
    for f in range(N_FEATURES):
        feature = tl.load(pairwise + edge * pair_edge + f)
        scores += feature * tl.load(table + f * N_LABELS * N_LABELS + cell)
    return scores


@triton.jit
def _totals(
    data,
    plan,
    home,
    worths,
    b,
    begin,
    stop,
    state,
    labels_ptr,
    features,
    pairwise,
    pair_edge,
    weights_ptr,
    tables_ptr,
    n_unary,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
):
    """Scores of joint labellings, (STATES, 1); -inf where a void site has another label than 0."""
    totals = tl.zeros(state.shape, tables_ptr.dtype.element_ty)
    t = begin
    while t < stop:
        i = tl.load(plan.site + t).to(tl.int64)
        worth = tl.load(worths + i)
        own = (state // worth) % N_LABELS
        if tl.load(labels_ptr + i) >= 0:
            totals += tl.load(weights_ptr + n_unary * N_LABELS + own)
            d = 0
            while d < n_unary:
                feature = tl.load(features + i * n_unary + d)
                totals += feature * tl.load(weights_ptr + d * N_LABELS + own)
                d += 1
            slot, last = tl.load(data.indptr + i), tl.load(data.indptr + i + 1)
            while slot < last:
                near = tl.load(data.neighbour + slot).to(tl.int64)
                inside, near_worth = tl.load(home + near) == b, tl.load(worths + near)
                label = tl.load(labels_ptr + near).to(tl.int32)
                # An edge inside the block counts at its later site.
                if (label >= 0) & ((near_worth > worth) | (inside == 0)):
                    other = tl.where(inside, (state // near_worth) % N_LABELS, label)
                    totals += _edge_scores(
                        data, tables_ptr, pairwise, pair_edge, slot, own, other, N_FEATURES, N_LABELS
                    )
                slot += 1
        else:
            totals += tl.where(own > 0, float("-inf"), 0.0)
        t += 1
    return totals


@triton.jit(do_not_specialize=["lo", "first", "n_blocks", "n_tiles"])
def _add_joint(
    data,
    plan,
    labels_ptr,
    importance_ptr,
    weights_ptr,
    tables_ptr,
    sums,
    lo,
    first,
    n_blocks,
    n_tiles,
    pair_image,
    pair_edge,
    importance_image,
    n_sites,
    n_unary,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    STATES: tl.constexpr,
):
    dtype: tl.constexpr = data.unary.dtype.element_ty
    program = tl.program_id(0).to(tl.int64)
    slopes = sums.slopes + program * (n_unary + 1) * N_LABELS
    pulls = sums.pulls + program * 2 * N_GROUPS * N_FEATURES * N_LABELS * N_LABELS
    k = tl.arange(0, LABELS)[None, :]
    value = tl.zeros([1, 1], tl.float64)
    tile = tl.program_id(0)
    while tile < n_tiles:
        n = lo + (tile // n_blocks).to(tl.int64)
        b = tl.load(plan.order + first + tile % n_blocks)
        importance = tl.load(importance_ptr + n * importance_image).to(dtype)
        features, pairwise = data.unary + n * n_sites * n_unary, data.pairwise + n * pair_image
        known_labels = labels_ptr + n * n_sites
        family = tl.load(plan.family + b).to(tl.int64)
        home, worths = plan.block_of + family * n_sites, plan.worth + family * n_sites
        begin, stop = tl.load(plan.ptr + b), tl.load(plan.ptr + b + 1)
        n_states = tl.load(worths + tl.load(plan.site + begin)) * N_LABELS
        true_state = tl.zeros([], tl.int32)
        t = begin
        while t < stop:
            i = tl.load(plan.site + t).to(tl.int64)
            true_state += tl.maximum(tl.load(known_labels + i).to(tl.int32), 0) * tl.load(worths + i)
            t += 1
        # The log partition, with the largest term taken out; labelling 0 is never forbidden, so the peak is finite.
        peak = tl.full([1, 1], float("-inf"), dtype)
        mass = tl.zeros([1, 1], dtype)
        true_total = tl.zeros([1, 1], dtype)
        first_state = tl.zeros([], tl.int32)
        while first_state < n_states:
            state = first_state + tl.arange(0, STATES)[:, None]
            totals = _totals(
                data,
                plan,
                home,
                worths,
                b,
                begin,
                stop,
                state,
                known_labels,
                features,
                pairwise,
                pair_edge,
                weights_ptr,
                tables_ptr,
                n_unary,
                N_FEATURES,
                N_LABELS,
            )
            totals = tl.where(state < n_states, totals, float("-inf"))
            true_total += tl.sum(tl.where(state == true_state, totals, 0.0), axis=0, keep_dims=True)
            higher = tl.maximum(peak, tl.max(totals, axis=0, keep_dims=True))
            mass = mass * tl.exp(peak - higher) + tl.sum(tl.exp(totals - higher), axis=0, keep_dims=True)
            peak = higher
            first_state += STATES
        log_partition = peak + tl.log(mass)
        value += (importance * (log_partition - true_total)).to(tl.float64)
        first_state = tl.zeros([], tl.int32)
        while first_state < n_states:
            state = first_state + tl.arange(0, STATES)[:, None]
            totals = _totals(
                data,
                plan,
                home,
                worths,
                b,
                begin,
                stop,
                state,
                known_labels,
                features,
                pairwise,
                pair_edge,
                weights_ptr,
                tables_ptr,
                n_unary,
                N_FEATURES,
                N_LABELS,
            )
            totals = tl.where(state < n_states, totals, float("-inf"))
            residual = importance * (tl.exp(totals - log_partition) - (state == true_state).to(dtype))
            t = begin
            while t < stop:
                i = tl.load(plan.site + t).to(tl.int64)
                worth = tl.load(worths + i)
                if tl.load(known_labels + i) >= 0:
                    each = tl.where((state // worth) % N_LABELS == k, residual, 0.0)  # (STATES, LABELS)
                    together = tl.sum(each, axis=0, keep_dims=True)
                    d = 0
                    while d < n_unary:
                        part = tl.load(features + i * n_unary + d) * together
                        add_items(slopes + d * N_LABELS + k, part, k < N_LABELS)
                        d += 1
                    add_items(slopes + n_unary * N_LABELS + k, together, k < N_LABELS)
                    slot, last = tl.load(data.indptr + i), tl.load(data.indptr + i + 1)
                    while slot < last:
                        near = tl.load(data.neighbour + slot).to(tl.int64)
                        inside, near_worth = tl.load(home + near) == b, tl.load(worths + near)
                        label = tl.load(known_labels + near).to(tl.int32)
                        if (label >= 0) & ((near_worth > worth) | (inside == 0)):
                            other = tl.where(inside, (state // near_worth) % N_LABELS, label)
                            edge = tl.load(data.edge + slot).to(tl.int64)
                            kind = tl.load(data.group + edge).to(tl.int32)
                            kind += N_GROUPS * tl.load(data.end + slot).to(tl.int32)
                            for f in range(N_FEATURES):
                                feature = tl.load(pairwise + edge * pair_edge + f)
                                for a in range(N_LABELS):
                                    at = pulls + ((kind * N_FEATURES + f) * N_LABELS + a) * N_LABELS + k
                                    add_items(at, feature * tl.where(other == a, each, 0.0), k < N_LABELS)
                        slot += 1
                t += 1
            first_state += STATES
        tile += tl.num_programs(0)
    tl.store(sums.losses + program + tl.zeros([1, 1], tl.int32), value)
