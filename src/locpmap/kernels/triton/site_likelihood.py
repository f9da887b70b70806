"""Negative log conditionals of sites and their slopes; see the reference for the definition.

A program takes tiles of sites in turn and adds what they give to sums of its own, in double precision; the programs'
sums are added at the end.  So nothing depends on which program comes first.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.binary_sites import add_binary_sites, is_binary
from locpmap.kernels.triton.linear_scores import (
    add_neighbour_slopes,
    add_neighbours,
    add_site_slopes,
    add_sums,
    new_sums,
    site_scores,
)


def site_likelihood(
    data: Observations,
    labels: torch.Tensor,
    samples: torch.Tensor,
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
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and sites begin..stop."""
    if is_binary(data, tables, samples.shape[2]):
        given = (data, labels, samples, site_weights, weights, tables)
        add_binary_sites(*given, value, slope, table_slope, lo, hi, begin, stop)
        return
    n_groups, n_features, n_labels, _ = tables.shape
    lanes = triton.next_power_of_2(n_labels)
    items = max(1, min(128, 1024 // lanes))
    n_tiles = (hi - lo) * triton.cdiv(stop - begin, items)
    sums = new_sums(n_tiles, slope, tables)
    parts = (data.pairwise, site_weights)
    strides = (part.stride(axis) if part.shape[axis] > 1 else 0 for part in parts for axis in (0, 1))
    precision = data.unary.dtype
    _site_likelihood[(len(sums.losses),)](
        *(data, labels, samples, site_weights, weights.to(precision), tables.to(precision), sums),
        *(lo, begin, stop, n_tiles, *strides, labels.shape[1], data.unary.shape[2], samples.shape[2]),
        LOG_SAMPLES=math.log(samples.shape[2]),
        ONE_SAMPLE=samples.shape[2] == 1,
        N_GROUPS=n_groups,
        N_FEATURES=n_features,
        N_LABELS=n_labels,
        LABELS=lanes,
        ITEMS=items,
    )
    add_sums(sums, value, slope, table_slope)


@triton.jit
def _log_conditionals(
    data,
    tables_ptr,
    pairwise,
    pair_edge,
    around,
    n_samples,
    alone,
    slot,
    degree,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """``log p(k | neighbours)``, (ITEMS, LABELS), from the scores that labels have ``alone``; -inf beyond L."""
    scores = add_neighbours(
        alone,
        around,
        n_samples,
        None,
        0,
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
    scores = tl.where(tl.arange(0, LABELS)[None, :] < N_LABELS, scores, float("-inf"))
    scores -= tl.max(scores, axis=1, keep_dims=True)
    return scores - tl.log(tl.sum(tl.exp(scores), axis=1, keep_dims=True))


@triton.jit(do_not_specialize=["lo", "begin", "stop", "n_tiles"])
def _site_likelihood(
    data,
    labels_ptr,
    samples_ptr,
    importance_ptr,
    weights_ptr,
    tables_ptr,
    sums,
    lo,
    begin,
    stop,
    n_tiles,
    pair_image,
    pair_edge,
    importance_image,
    importance_site,
    n_sites,
    n_unary,
    n_samples,
    LOG_SAMPLES: tl.constexpr,
    ONE_SAMPLE: tl.constexpr,
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
    per_image = tl.cdiv(stop - begin, ITEMS)
    value = tl.zeros([ITEMS], tl.float64)
    tile = tl.program_id(0)
    while tile < n_tiles:
        n = lo + (tile // per_image).to(tl.int64)
        i = begin + (tile % per_image) * ITEMS + tl.arange(0, ITEMS).to(tl.int64)
        true = tl.load(labels_ptr + n * n_sites + i, mask=i < stop, other=-1).to(tl.int32)
        valid = true >= 0
        is_true = k == true[:, None]
        importance = tl.load(importance_ptr + n * importance_image + i * importance_site, mask=valid, other=0.0)
        importance = importance.to(dtype)
        slot = tl.load(data.indptr + i, mask=valid, other=0)
        degree = (tl.load(data.indptr + i + 1, mask=valid, other=0) - slot).to(tl.int32)
        features = data.unary + (n * n_sites + i) * n_unary
        pairwise = data.pairwise + n * pair_image
        around = samples_ptr + n * n_sites * n_samples
        alone = site_scores(features, weights_ptr, valid, n_unary, N_LABELS, LABELS)
        log_sum = tl.zeros([ITEMS], dtype)
        if not ONE_SAMPLE:
            # The logarithm of Σ_m p(y_i | y^m), with the largest term taken out.
            peak = tl.full([ITEMS], float("-inf"), dtype)
            mass = tl.zeros([ITEMS], dtype)
            m = 0
            while m < n_samples:
                log_p = _log_conditionals(
                    data,
                    tables_ptr,
                    pairwise,
                    pair_edge,
                    around + m,
                    n_samples,
                    alone,
                    slot,
                    degree,
                    N_FEATURES,
                    N_LABELS,
                    LABELS,
                )
                log_true = tl.sum(tl.where(is_true, log_p, 0.0), axis=1)
                higher = tl.maximum(peak, log_true)
                mass = mass * tl.exp(peak - higher) + tl.exp(log_true - higher)
                peak = higher
                m += 1
            log_sum = peak + tl.log(mass)
        together = tl.zeros([ITEMS, LABELS], dtype)
        m = 0
        while m < n_samples:
            log_p = _log_conditionals(
                data,
                tables_ptr,
                pairwise,
                pair_edge,
                around + m,
                n_samples,
                alone,
                slot,
                degree,
                N_FEATURES,
                N_LABELS,
                LABELS,
            )
            log_true = tl.sum(tl.where(is_true, log_p, 0.0), axis=1)
            if ONE_SAMPLE:
                log_sum = log_true
            share = tl.exp(log_true - log_sum)
            residual = (importance * share)[:, None] * (tl.exp(log_p) - is_true.to(dtype))
            together += residual
            add_neighbour_slopes(
                pulls,
                residual,
                around + m,
                n_samples,
                None,
                0,
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
            m += 1
        value += tl.where(valid, importance * (LOG_SAMPLES - log_sum), 0.0).to(tl.float64)
        add_site_slopes(slopes, features, together, valid, n_unary, N_LABELS, LABELS)
        tile += tl.num_programs(0)
    tl.store(sums.losses + program, tl.sum(value, axis=0))
