"""Scores that neighbours' labels add to those of sites, inside the kernels of likelihoods.

Items are sites of an image; labels go along the second axis of a tile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.likelihood import Scores


class ScoredGraph(NamedTuple):
    """The tensors of scores that kernels read: one argument."""

    unary: torch.Tensor
    features: torch.Tensor
    tables: torch.Tensor
    group: torch.Tensor
    indptr: torch.Tensor
    neighbour: torch.Tensor
    edge: torch.Tensor
    end: torch.Tensor


def graph_of(scores: Scores) -> ScoredGraph:
    """Return the tensors of scores that kernels read."""
    return ScoredGraph(*(getattr(scores, name) for name in ScoredGraph._fields))


def strides_of(scores: Scores) -> tuple[int, int, int]:
    """Return the strides of features by image and edge, and of tables by image; 0 for axes of length 1."""
    image, edge = (scores.features.stride(axis) if scores.features.shape[axis] > 1 else 0 for axis in (0, 1))
    return image, edge, scores.tables.stride(0) if len(scores.tables) > 1 else 0


def constants_of(scores: Scores) -> dict[str, Any]:
    """Return what kernels are compiled for."""
    n_labels = scores.unary.shape[2]
    lanes = triton.next_power_of_2(n_labels)
    n_features = 0 if scores.potts else scores.tables.shape[2]
    return {"POTTS": scores.potts, "N_FEATURES": n_features, "N_LABELS": n_labels, "LABELS": lanes}


@triton.jit
def pair_columns(
    graph,
    n,
    strides,
    slot,
    other,
    there,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Return scores (ITEMS, LABELS) of a site's labels with label ``other`` of the neighbour at a slot.

    They are 0 where not ``there`` (ITEMS,); ``n`` is the image, ``strides`` are those of :func:`strides_of`.
    """
    image_stride, edge_stride, table_stride = strides
    k = tl.arange(0, LABELS)[None, :]
    edge = tl.load(graph.edge + slot, mask=there, other=0).to(tl.int64)
    features = graph.features + n * image_stride + edge * edge_stride
    if POTTS:
        weight = tl.load(features, mask=there, other=0.0)
        return tl.where(k == other[:, None], weight[:, None], 0.0)
    else:
        group = tl.load(graph.group + edge, mask=there, other=0).to(tl.int64)
        is_first = tl.load(graph.end + slot, mask=there, other=0) == 0
        table = n * table_stride + group * N_FEATURES * N_LABELS * N_LABELS
        column = table + other * tl.where(is_first, 1, N_LABELS)
        cell = column[:, None] + k * tl.where(is_first, N_LABELS, 1)[:, None]
        held = there[:, None] & (k < N_LABELS)
        scores = tl.zeros(cell.shape, graph.tables.dtype.element_ty)
        for f in range(N_FEATURES):
            feature = tl.load(features + f, mask=there, other=0.0)
            scores += feature[:, None] * tl.load(graph.tables + cell + f * N_LABELS * N_LABELS, mask=held, other=0.0)
        return scores


@triton.jit
def local_scores(
    graph,
    labels,
    stride,
    block_of,
    n,
    strides,
    i,
    valid,
    n_sites,
    POTTS: tl.constexpr,
    N_FEATURES: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """Return the scores (ITEMS, LABELS) of sites with those that the labels of their neighbours add; -inf beyond L.

    ``labels`` leads to the label of the image's site 0, the next is ``stride`` further.  Where ``block_of`` is not
    None, it leads to the blocks of sites, and neighbours in a site's own block do not count; nor do those of label -1.
    """
    k = tl.arange(0, LABELS)[None, :]
    held = valid[:, None] & (k < N_LABELS)
    scores = tl.load(graph.unary + (n * n_sites + i)[:, None] * N_LABELS + k, mask=held, other=0.0)
    slot = tl.load(graph.indptr + i, mask=valid, other=0)
    degree = (tl.load(graph.indptr + i + 1, mask=valid, other=0) - slot).to(tl.int32)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there = step < degree
        near = tl.load(graph.neighbour + slot + step, mask=there, other=0).to(tl.int64)
        if block_of is not None:
            block = tl.load(block_of + i, mask=valid, other=0)
            there = there & (tl.load(block_of + near, mask=there, other=0) != block)
        label = tl.load(labels + near * stride, mask=there, other=-1).to(tl.int32)
        scores += pair_columns(graph, n, strides, slot + step, label, label >= 0, POTTS, N_FEATURES, N_LABELS, LABELS)
        step += 1
    return tl.where(k < N_LABELS, scores, float("-inf"))
