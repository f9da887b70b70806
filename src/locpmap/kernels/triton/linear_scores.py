"""Scores of a log-linear model at sites and edges, and sums of their derivatives by the weights, inside kernels.

Items are sites of an image.  Sums are a program's own, in double precision: ``slopes`` (D + 1, L) and ``pulls``
(2G, F, L, L), by the kind of an edge, ``group + G · end``, then the neighbour's label, then this site's label last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

MAX_PROGRAMS = 1024
MAX_SUMS = 2**24  # numbers that all programs' sums hold


class Sums(NamedTuple):
    """The sums of all programs, (P, ...), as kernels take them: one argument."""

    losses: torch.Tensor  # (P,)
    slopes: torch.Tensor  # (P, D + 1, L)
    pulls: torch.Tensor  # (P, 2G, F, L, L)


def new_sums(n_tiles: int, slope: torch.Tensor, tables: torch.Tensor) -> Sums:
    """Zeros, for as many programs as are to share the tiles."""
    n_groups, *rest = tables.shape
    n_programs = max(1, min(n_tiles, MAX_PROGRAMS, MAX_SUMS // (2 * tables.numel() + slope.numel())))
    shapes = ((), slope.shape, (2 * n_groups, *rest))
    how: dict[str, Any] = {"dtype": torch.float64, "device": slope.device}
    return Sums(*(torch.zeros((n_programs, *shape), **how) for shape in shapes))


def add_sums(sums: Sums, value: torch.Tensor, slope: torch.Tensor, table_slope: torch.Tensor) -> None:
    """Add the programs' sums to the results."""
    n_groups = len(table_slope)
    pull = sums.pulls.sum(0)
    value += sums.losses.sum()
    slope += sums.slopes.sum(0)
    table_slope += pull[:n_groups].mT + pull[n_groups:]


@triton.jit
def site_scores(features, weights_ptr, valid, n_unary, N_LABELS: tl.constexpr, LABELS: tl.constexpr):
    """Scores (ITEMS, LABELS) from the features that pointers (ITEMS,) lead to; 0 beyond L."""
    k = tl.arange(0, LABELS)[None, :]
    bias = tl.load(weights_ptr + n_unary * N_LABELS + k, mask=k < N_LABELS, other=0.0)
    scores = bias + tl.zeros([valid.shape[0], LABELS], bias.dtype)
    d = 0
    while d < n_unary:
        feature = tl.load(features + d, mask=valid, other=0.0)
        scores += feature[:, None] * tl.load(weights_ptr + d * N_LABELS + k, mask=k < N_LABELS, other=0.0)
        d += 1
    return scores


@triton.jit
def pair_columns(
    data,
    tables_ptr,
    pairwise,
    pair_edge,
    slot,
    other,
    there,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Scores (ITEMS, LABELS) of a site's labels with label ``other`` of the neighbour at a slot; 0 where not ``there``.

    ``pairwise`` leads to the image's pairwise features; ``slot``, ``other`` and ``there`` are (ITEMS,).
    """
    k = tl.arange(0, LABELS)[None, :]
    edge = tl.load(data.edge + slot, mask=there, other=0).to(tl.int64)
    group = tl.load(data.group + edge, mask=there, other=0).to(tl.int64)
    is_first = tl.load(data.end + slot, mask=there, other=0) == 0
    column = group * N_FEATURES * N_LABELS * N_LABELS + other * tl.where(is_first, 1, N_LABELS)
    cell = column[:, None] + k * tl.where(is_first, N_LABELS, 1)[:, None]
    held = there[:, None] & (k < N_LABELS)
    scores = tl.zeros(cell.shape, tables_ptr.dtype.element_ty)
    for f in range(N_FEATURES):
        feature = tl.load(pairwise + edge * pair_edge + f, mask=there, other=0.0)
        scores += feature[:, None] * tl.load(tables_ptr + cell + f * N_LABELS * N_LABELS, mask=held, other=0.0)
    return scores


@triton.jit
def add_site_slopes(slopes, features, residual, valid, n_unary, N_LABELS: tl.constexpr, LABELS: tl.constexpr):
    """Add what derivatives by the scores of sites, (ITEMS, LABELS), mean for the weights."""
    k = tl.arange(0, LABELS)[None, :]
    d = 0
    while d < n_unary:
        feature = tl.load(features + d, mask=valid, other=0.0)
        add_items(slopes + d * N_LABELS + k, feature[:, None] * residual, k < N_LABELS)
        d += 1
    add_items(slopes + n_unary * N_LABELS + k, residual, k < N_LABELS)


@triton.jit
def add_pair_slopes(
    pulls,
    data,
    pairwise,
    pair_edge,
    slot,
    other,
    there,
    residual,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Add what derivatives by the scores of :func:`pair_columns`, (ITEMS, LABELS), mean for the tables."""
    k = tl.arange(0, LABELS)[None, :]
    edge = tl.load(data.edge + slot, mask=there, other=0).to(tl.int64)
    end = tl.load(data.end + slot, mask=there, other=0).to(tl.int32)
    kind = tl.load(data.group + edge, mask=there, other=0).to(tl.int32) + N_GROUPS * end
    for c in range(2 * N_GROUPS):
        alike = there & (kind == c)
        least = tl.min(tl.where(alike, other, N_LABELS), axis=0)
        most = tl.max(tl.where(alike, other, -1), axis=0)
        for f in range(N_FEATURES):
            push = tl.load(pairwise + edge * pair_edge + f, mask=alike, other=0.0)[:, None] * residual
            a = least
            while a <= most:
                at = pulls + ((c * N_FEATURES + f) * N_LABELS + a) * N_LABELS + k
                add_items(at, tl.where((other == a)[:, None], push, 0.0), k < N_LABELS)
                a += 1


@triton.jit
def _label_around(data, labels, stride, slot, degree, step, home, block):
    """The label (ITEMS,) of neighbour number ``step``, -1 where there is none that counts; see below."""
    there = step < degree
    near = tl.load(data.neighbour + slot + step, mask=there, other=0).to(tl.int64)
    if home is not None:
        there = there & (tl.load(home + near, mask=there, other=0) != block)
    return tl.load(labels + near * stride, mask=there, other=-1).to(tl.int32)


@triton.jit
def add_neighbours(
    scores,
    labels,
    stride,
    home,
    block,
    data,
    tables_ptr,
    pairwise,
    pair_edge,
    slot,
    degree,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Scores (ITEMS, LABELS) plus those with the labels of neighbours, ``degree`` many from ``slot`` on.

    ``labels`` leads to the label of site 0, the next is ``stride`` further.  Where ``home`` is not None, it leads to
    the blocks of sites, and neighbours in the item's own ``block`` do not count; nor do those with label -1.
    """
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        label = _label_around(data, labels, stride, slot, degree, step, home, block)
        scores += pair_columns(
            data, tables_ptr, pairwise, pair_edge, slot + step, label, label >= 0, N_FEATURES, N_LABELS, LABELS
        )
        step += 1
    return scores


@triton.jit
def add_neighbour_slopes(
    pulls,
    residual,
    labels,
    stride,
    home,
    block,
    data,
    pairwise,
    pair_edge,
    slot,
    degree,
    N_GROUPS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Add what derivatives by the scores of :func:`add_neighbours`, (ITEMS, LABELS), mean for the tables."""
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        label = _label_around(data, labels, stride, slot, degree, step, home, block)
        add_pair_slopes(
            pulls,
            data,
            pairwise,
            pair_edge,
            slot + step,
            label,
            label >= 0,
            residual,
            N_GROUPS,
            N_FEATURES,
            N_LABELS,
            LABELS,
        )
        step += 1


@triton.jit
def add_items(at, parts, known):
    """Add the sums of parts (ITEMS, LABELS) over the items to what the program has at these places, (1, LABELS)."""
    total = tl.load(at, mask=known, other=0.0) + tl.sum(parts.to(tl.float64), axis=0, keep_dims=True)
    tl.debug_barrier()
    tl.store(at, total, mask=known)
    tl.debug_barrier()  # another thread may be the next to read it
