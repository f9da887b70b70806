"""Log partitions of the rows of grids as chains, and their slopes: marginals of labels and of pairs.

The way to the right keeps the messages, normalised: ``message_t[b] = log p(label b at t | all to the left)``.  The way
back turns them into marginals, without messages of its own: given the label to the right, a label's probability is
proportional to ``exp(message + term)``.

Lanes go along the rows; O(W · K²) for each.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from locpmap.kernels.triton.grid_losses import terms_of

CELLS = 128  # rows × labels of a tile
MAX_PROGRAMS = 4096


def chain_log_partitions(scores: Tensor, edges: Tensor, joined: Tensor) -> tuple[Tensor, Tensor]:
    """The log partition of every row, (N, H), and the messages, (N, H, W, K).

    Args:
        scores: (N, H, W, K).
        edges: Between a column and the next: weights where labels agree, (1|N, 1|H, 1|W-1), or tables, (K, K) appended.
        joined: (N, H, W-1) bool: where there is an edge.
    """
    messages = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    total = scores.new_empty(scores.shape[:2])
    grid, sizes, constants = _launch(scores, edges)
    given = (scores, terms_of(edges), joined.contiguous().view(torch.uint8), messages, total)
    _chain_log_partitions[grid](*given, *scores.stride(), *sizes, **constants, num_warps=1)
    return total, messages


def chain_marginals(upstream: Tensor, edges: Tensor, joined: Tensor, messages: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives by scores and edges, given those by the log partitions, (N, H), and the messages."""
    grid, sizes, constants = _launch(messages, edges)
    slope = torch.empty_like(messages)
    shared = edges.dim() == 5 and edges.shape[:3] == (1, 1, 1)
    # A table for all is added up by each program for itself; of terms of edges there are as many as slopes anyway.
    shape = (grid[0], 1, 1) if shared else tuple(joined.shape)
    pulls = torch.zeros((*shape, *edges.shape[3:]), dtype=edges.dtype, device=edges.device)
    given = (upstream, terms_of(edges), joined.contiguous().view(torch.uint8), messages, slope, terms_of(pulls))
    _chain_marginals[grid](*given, *upstream.stride(), *sizes, **constants, SHARED=shared, num_warps=1)
    return slope, pulls.sum_to_size(edges.shape)


def _launch(scores: Tensor, edges: Tensor) -> tuple[tuple[int], tuple[int, ...], dict[str, Any]]:
    n_images, height, width, n_labels = scores.shape
    lanes = triton.next_power_of_2(n_labels)
    items = max(1, CELLS // lanes)
    n_tiles = triton.cdiv(n_images * height, items)
    constants = {"TABLES": edges.dim() == 5, "N_LABELS": n_labels, "LABELS": lanes, "ITEMS": items}
    return (min(MAX_PROGRAMS, n_tiles),), (n_images * height, height, width, n_tiles), constants


@triton.jit
def _term_columns(at, terms, joined, b, TABLES: tl.constexpr, N_LABELS: tl.constexpr, LABELS: tl.constexpr):
    """Scores (ITEMS, LABELS) of a column's labels with label b of the next, from pointers to the edges' terms."""
    a = tl.arange(0, LABELS)[None, :]
    if TABLES:
        cells = at[:, None] + a * terms.first + b * terms.second
        return tl.load(cells, mask=joined[:, None] & (a < N_LABELS), other=0.0)
    else:
        weight = tl.load(at, mask=joined, other=0.0)
        return tl.where(a == b, weight[:, None], 0.0)


@triton.jit
def _log_sums(scores):
    """(ITEMS, 1) from (ITEMS, LABELS)."""
    peak = tl.max(scores, axis=1, keep_dims=True)
    return peak + tl.log(tl.sum(tl.exp(scores - peak), axis=1, keep_dims=True))


@triton.jit(do_not_specialize=["n_rows", "height", "width", "n_tiles"])
def _chain_log_partitions(
    scores_ptr,
    terms,
    joined_ptr,
    messages_ptr,
    total_ptr,
    image,
    row,
    column,
    label,
    n_rows,
    height,
    width,
    n_tiles,
    TABLES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    k = tl.arange(0, LABELS)[None, :]
    tile = tl.program_id(0)
    while tile < n_tiles:
        item = tile.to(tl.int64) * ITEMS + tl.arange(0, ITEMS)
        real = item < n_rows
        held = real[:, None] & (k < N_LABELS)
        n, h = item // height, item % height
        places = scores_ptr + (n * image + h * row)[:, None] + k * label
        kept = messages_ptr + (item * width * N_LABELS)[:, None] + k
        edge = terms.score + n * terms.image + h * terms.row
        # Beyond the labels there is nothing; rows beyond the last have one label.
        nothing = tl.where(real[:, None] | (k > 0), float("-inf"), 0.0).to(dtype)
        message = tl.zeros([ITEMS, LABELS], dtype)
        total = tl.zeros([ITEMS, 1], dtype)
        t = 0
        while t < width:
            scores = tl.load(places + t.to(tl.int64) * column, mask=held, other=0.0)
            if t > 0:
                joined = tl.load(joined_ptr + item * (width - 1) + t - 1, mask=real, other=0) != 0
                for b in range(N_LABELS):
                    at = edge + (t - 1).to(tl.int64) * terms.column
                    terms_of_b = _term_columns(at, terms, joined, b, TABLES, N_LABELS, LABELS)
                    scores += tl.where(k == b, _log_sums(message + terms_of_b), 0.0)
            message = tl.where(held, scores, nothing)
            mass = _log_sums(message)
            total += mass
            message -= mass
            tl.store(kept + t * N_LABELS, message, mask=held)
            t += 1
        tl.store(total_ptr + item[:, None] + tl.zeros([ITEMS, 1], tl.int64), total, mask=real[:, None])
        tile += tl.num_programs(0)


@triton.jit(do_not_specialize=["n_rows", "height", "width", "n_tiles"])
def _chain_marginals(
    upstream_ptr,
    terms,
    joined_ptr,
    messages_ptr,
    slope_ptr,
    pulls,
    upstream_image,
    upstream_row,
    n_rows,
    height,
    width,
    n_tiles,
    TABLES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    SHARED: tl.constexpr,
):
    dtype: tl.constexpr = messages_ptr.dtype.element_ty
    k = tl.arange(0, LABELS)[None, :]
    second = tl.arange(0, LABELS)[:, None]
    table = tl.zeros([LABELS, LABELS], dtype)  # (second, first)
    tile = tl.program_id(0)
    while tile < n_tiles:
        item = tile.to(tl.int64) * ITEMS + tl.arange(0, ITEMS)
        real = item < n_rows
        held = real[:, None] & (k < N_LABELS)
        n, h = item // height, item % height
        kept = (item * width * N_LABELS)[:, None] + k
        edge = terms.score + n * terms.image + h * terms.row
        pull = pulls.score + n * pulls.image + h * pulls.row
        upstream = tl.load(upstream_ptr + n * upstream_image + h * upstream_row, mask=real, other=0.0)[:, None]
        nothing = tl.where(real[:, None] | (k > 0), float("-inf"), 0.0).to(dtype)
        t = width - 1
        message = tl.where(held, tl.load(messages_ptr + kept + t * N_LABELS, mask=held, other=0.0), nothing)
        node = tl.exp(message)
        tl.store(slope_ptr + kept + t * N_LABELS, upstream * node, mask=held)
        while t > 0:
            t -= 1
            message = tl.where(held, tl.load(messages_ptr + kept + t * N_LABELS, mask=held, other=0.0), nothing)
            joined = tl.load(joined_ptr + item * (width - 1) + t, mask=real, other=0) != 0
            at, to = edge + t.to(tl.int64) * terms.column, pull + t.to(tl.int64) * pulls.column
            before = tl.zeros([ITEMS, LABELS], dtype)
            agreeing = tl.zeros([ITEMS], dtype)
            for b in range(N_LABELS):
                scores = message + _term_columns(at, terms, joined, b, TABLES, N_LABELS, LABELS)
                joint = tl.exp(scores - _log_sums(scores)) * tl.sum(tl.where(k == b, node, 0.0), axis=1, keep_dims=True)
                before += joint
                part = tl.where(joined[:, None], upstream * joint, 0.0)
                if SHARED:
                    table += tl.where(second == b, tl.sum(part, axis=0, keep_dims=True), 0.0)
                elif TABLES:
                    tl.store(to[:, None] + k * pulls.first + b * pulls.second, part, mask=held)
                else:
                    agreeing += tl.sum(tl.where(k == b, part, 0.0), axis=1)
            if not TABLES:
                tl.store(to, agreeing, mask=real)
            node = before
            tl.store(slope_ptr + kept + t * N_LABELS, upstream * node, mask=held)
        tile += tl.num_programs(0)
    if SHARED:
        cells = pulls.score + tl.program_id(0) * pulls.image + k * pulls.first + second * pulls.second
        tl.store(cells, table, mask=(k < N_LABELS) & (second < N_LABELS))
