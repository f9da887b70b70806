"""Likelihoods of chains and other forests: sums from the leaves up, then marginals from the roots down.

Lanes go along the blocks of an image.  The way down makes the table of a site given its parent anew from what is kept
of the way up, the site's beliefs: scores with all below summed out.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from locpmap.kernels.triton.linear_scores import (
    Sums,
    add_neighbour_slopes,
    add_neighbours,
    add_pair_slopes,
    add_site_slopes,
    new_sums,
    pair_columns,
    site_scores,
)


def add_forests(
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
    """The sums of blocks ``order[first:last]``, of at most so many sites, for images lo..hi."""
    data, plan = arrays[:2]
    items = max(1, min(16, 512 // constants["LABELS"]))
    n_tiles = (hi - lo) * triton.cdiv(last - first, items)
    sums = new_sums(n_tiles, slope, arrays[-1])
    shape = (hi - lo, len(plan.site), constants["N_LABELS"])
    belief = torch.zeros(shape, dtype=data.unary.dtype, device=data.unary.device)
    marginal = torch.empty_like(belief)
    window = (lo, first, last, n_tiles, longest, len(plan.site))
    _add_forests[(len(sums.losses),)](*arrays, sums, belief, marginal, *window, *sizes, **constants, ITEMS=items)
    return sums


@triton.jit(do_not_specialize=["lo", "first", "last", "n_tiles", "longest", "n_places"])
def _add_forests(
    data,
    plan,
    labels_ptr,
    importance_ptr,
    weights_ptr,
    tables_ptr,
    sums,
    belief_ptr,
    marginal_ptr,
    lo,
    first,
    last,
    n_tiles,
    longest,
    n_places,
    pair_image,
    pair_edge,
    importance_image,
    n_sites,
    n_unary,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    dtype: tl.constexpr = data.unary.dtype.element_ty
    program = tl.program_id(0).to(tl.int64)
    slopes = sums.slopes + program * (n_unary + 1) * N_LABELS
    pulls = sums.pulls + program * 2 * N_GROUPS * N_FEATURES * N_LABELS * N_LABELS
    k = tl.arange(0, LABELS)[None, :]
    per_image = tl.cdiv(last - first, ITEMS)
    value = tl.zeros([ITEMS], tl.float64)
    tile = tl.program_id(0)
    while tile < n_tiles:
        n = lo + (tile // per_image).to(tl.int64)
        item = first + (tile % per_image) * ITEMS + tl.arange(0, ITEMS)
        real = item < last
        b = tl.load(plan.order + item, mask=real, other=0)
        importance = tl.load(importance_ptr + n * importance_image).to(dtype)
        features, pairwise = data.unary + n * n_sites * n_unary, data.pairwise + n * pair_image
        known_labels = labels_ptr + n * n_sites
        home = plan.block_of + tl.load(plan.family + b, mask=real, other=0).to(tl.int64) * n_sites
        begin = tl.load(plan.ptr + b, mask=real, other=0)
        stop = tl.load(plan.ptr + b + 1, mask=real, other=0)
        kept = (n - lo) * n_places * N_LABELS + k
        position = longest - 1
        while position >= 0:
            t = begin + position
            there = t < stop
            i = tl.load(plan.site + t, mask=there, other=0).to(tl.int64)
            valid = tl.load(known_labels + i, mask=there, other=-1) >= 0
            held = valid[:, None] & (k < N_LABELS)
            belief = site_scores(features + i * n_unary, weights_ptr, valid, n_unary, N_LABELS, LABELS)
            belief += tl.load(belief_ptr + kept + t[:, None] * N_LABELS, mask=held, other=0.0)
            slot = tl.load(data.indptr + i, mask=valid, other=0)
            degree = (tl.load(data.indptr + i + 1, mask=valid, other=0) - slot).to(tl.int32)
            belief = add_neighbours(
                belief,
                known_labels,
                1,
                home,
                b,
                data,
                tables_ptr,
                pairwise,
                pair_edge,
                slot,
                degree,
                N_FEATURES,
                N_LABELS,
                LABELS,
            )
            tl.store(belief_ptr + kept + t[:, None] * N_LABELS, belief, mask=held)
            belief = tl.where(k < N_LABELS, belief, float("-inf"))
            upward = tl.load(plan.parent_slot + t, mask=valid, other=-1).to(tl.int64)
            above = begin + tl.load(plan.parent + t, mask=upward >= 0, other=0)
            site_above = tl.load(plan.site + above, mask=upward >= 0, other=0)
            bound = tl.load(known_labels + site_above, mask=upward >= 0, other=-1) >= 0
            message = tl.zeros([ITEMS, LABELS], dtype)
            for a in range(N_LABELS):
                label = tl.zeros([ITEMS], tl.int32) + a
                scores = belief + pair_columns(
                    data, tables_ptr, pairwise, pair_edge, upward, label, bound, N_FEATURES, N_LABELS, LABELS
                )
                peak = tl.max(scores, axis=1, keep_dims=True)
                log_sum = peak + tl.log(tl.sum(tl.exp(scores - peak), axis=1, keep_dims=True))
                message = tl.where(k == a, log_sum, message)
            # A constant does not matter; without it single precision lasts for any number of sites.
            message -= tl.max(tl.where(k < N_LABELS, message, float("-inf")), axis=1, keep_dims=True)
            up = belief_ptr + kept + above[:, None] * N_LABELS
            sent = bound[:, None] & (k < N_LABELS)
            tl.debug_barrier()
            gathered = tl.load(up, mask=sent, other=0.0) + message
            tl.debug_barrier()
            tl.store(up, gathered, mask=sent)
            tl.debug_barrier()  # other threads may read what these stored
            position -= 1
        position = 0
        while position < longest:
            t = begin + position
            there = t < stop
            i = tl.load(plan.site + t, mask=there, other=0).to(tl.int64)
            true = tl.load(known_labels + i, mask=there, other=-1).to(tl.int32)
            valid = true >= 0
            is_true = k == true[:, None]
            held = valid[:, None] & (k < N_LABELS)
            belief = tl.load(belief_ptr + kept + t[:, None] * N_LABELS, mask=held, other=0.0)
            belief = tl.where(k < N_LABELS, belief, float("-inf"))
            upward = tl.load(plan.parent_slot + t, mask=valid, other=-1).to(tl.int64)
            above = begin + tl.load(plan.parent + t, mask=upward >= 0, other=0)
            site_above = tl.load(plan.site + above, mask=upward >= 0, other=0)
            true_above = tl.load(known_labels + site_above, mask=upward >= 0, other=-1).to(tl.int32)
            bound = true_above >= 0
            node = tl.zeros([ITEMS, LABELS], dtype)
            for a in range(N_LABELS):
                label = tl.zeros([ITEMS], tl.int32) + a
                scores = belief + pair_columns(
                    data, tables_ptr, pairwise, pair_edge, upward, label, bound, N_FEATURES, N_LABELS, LABELS
                )
                scores -= tl.max(scores, axis=1, keep_dims=True)
                log_p = scores - tl.log(tl.sum(tl.exp(scores), axis=1, keep_dims=True))
                # A root's parent has label 0 for certain.
                p_above = tl.load(marginal_ptr + (n - lo) * n_places * N_LABELS + above * N_LABELS + a, mask=bound)
                p_above = tl.where(bound, p_above, (label == 0).to(dtype))
                given = tl.maximum(true_above, 0) == a
                log_true = tl.sum(tl.where(is_true, log_p, 0.0), axis=1)
                value -= tl.where(valid & given, importance * log_true, 0.0).to(tl.float64)
                joint = tl.exp(log_p) * p_above[:, None]
                node += joint
                add_pair_slopes(
                    pulls,
                    data,
                    pairwise,
                    pair_edge,
                    upward,
                    label,
                    bound,
                    importance * (joint - (is_true & given[:, None]).to(dtype)),
                    N_GROUPS,
                    N_FEATURES,
                    N_LABELS,
                    LABELS,
                )
            tl.store(marginal_ptr + kept + t[:, None] * N_LABELS, node, mask=held)
            tl.debug_barrier()  # other threads may read what these stored
            residual = tl.where(held, importance * (node - is_true.to(dtype)), 0.0)
            add_site_slopes(slopes, features + i * n_unary, residual, valid, n_unary, N_LABELS, LABELS)
            slot = tl.load(data.indptr + i, mask=valid, other=0)
            degree = (tl.load(data.indptr + i + 1, mask=valid, other=0) - slot).to(tl.int32)
            add_neighbour_slopes(
                pulls,
                residual,
                known_labels,
                1,
                home,
                b,
                data,
                pairwise,
                pair_edge,
                slot,
                degree,
                N_GROUPS,
                N_FEATURES,
                N_LABELS,
                LABELS,
            )
            position += 1
        tile += tl.num_programs(0)
    tl.store(sums.losses + program, tl.sum(value, axis=0))
