"""Scores of sites given the labels of their neighbours: device functions of the likelihood kernels.

Items are sites of an image; labels are the second axis of a tile.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.likelihood import Scores
from locpmap.kernels.triton.local_scores import strides_of

Range = tuple[int, int]


class ScoredGraph(NamedTuple):
    """The scores and neighbour lists that kernels read.  The stride of an axis of length 1 is 0."""

    unary: torch.Tensor
    features: torch.Tensor
    feature_image: int  # stride between images
    feature_edge: int  # stride between edges
    tables: torch.Tensor
    table_image: int
    group: torch.Tensor
    indptr: torch.Tensor
    neighbour: torch.Tensor
    edge: torch.Tensor
    end: torch.Tensor
    n_sites: int


class Task(NamedTuple):
    """Inputs and outputs of one launch, which solves blocks of one family."""

    block_of: torch.Tensor  # (S,)
    worth: torch.Tensor  # (S,), see `PlacedPlan`
    labels: torch.Tensor  # (N, S)
    weights: torch.Tensor  # (1|N,)
    local: torch.Tensor  # (n, S, L) scores given the labels around the blocks
    value: torch.Tensor  # (N, B)
    residual: torch.Tensor  # (N, S, 1, L)
    pairs: torch.Tensor  # derivatives with respect to the edges' scores: (n, E), or (n, E, L, L)
    n_edges: int
    n_blocks: int
    weight_image: int  # stride between images


def graph_of(scores: Scores) -> ScoredGraph:
    """Return the scores and neighbour lists in the form that kernels take."""
    tables = (scores.tables, scores.tables.stride(0) if len(scores.tables) > 1 else 0)
    lists = (scores.group, scores.indptr, scores.neighbour, scores.edge, scores.end)
    features = (scores.features, *strides_of(scores.features))
    return ScoredGraph(scores.unary, *features, *tables, *lists, scores.unary.shape[1])


@triton.jit
def pair_columns(graph, n, slot, other, there, SIZES: tl.constexpr):
    """Return scores (ITEMS, LABELS) of a site with label ``other`` of a neighbour; 0 where ``there`` is false."""
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    edge = tl.load(graph.edge + slot, mask=there, other=0).to(tl.int64)
    features = graph.features + n * graph.feature_image + edge * graph.feature_edge
    if SIZES.potts:
        weight = tl.load(features, mask=there, other=0.0)
        return tl.where(k == other[:, None], weight[:, None], 0.0)
    else:
        group = tl.load(graph.group + edge, mask=there, other=0).to(tl.int64)
        is_first = tl.load(graph.end + slot, mask=there, other=0) == 0
        table = n * graph.table_image + group * SIZES.n_features * N_LABELS * N_LABELS
        column = table + other * tl.where(is_first, 1, N_LABELS)
        cell = column[:, None] + k * tl.where(is_first, N_LABELS, 1)[:, None]
        held = there[:, None] & (k < N_LABELS)
        scores = tl.zeros(cell.shape, graph.tables.dtype.element_ty)
        for f in range(SIZES.n_features):
            feature = tl.load(features + f, mask=there, other=0.0)
            scores += feature[:, None] * tl.load(graph.tables + cell + f * N_LABELS * N_LABELS, mask=held, other=0.0)
        return scores


@triton.jit
def local_scores(graph, labels, stride, block_of, n, i, valid, SIZES: tl.constexpr):
    """Return the unaries of sites plus the pairwise scores with their neighbours' labels, (ITEMS, LABELS).

    Labels beyond L score -inf.  ``labels`` points to the label of the image's site 0; sites are ``stride`` elements
    apart.  Neighbours with label -1 are ignored; so are those in the same block, if ``block_of`` is given.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    held = valid[:, None] & (k < N_LABELS)
    scores = tl.load(graph.unary + (n * graph.n_sites + i)[:, None] * N_LABELS + k, mask=held, other=0.0)
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
        scores += pair_columns(graph, n, slot + step, label, label >= 0, SIZES)
        step += 1
    return tl.where(k < N_LABELS, scores, float("-inf"))
