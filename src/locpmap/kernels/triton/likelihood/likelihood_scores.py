"""Scores of sites given the labels of their neighbours: device functions of the likelihood kernels.

Items are sites of an image; labels are the second axis of a tile.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from locpmap.kernels.triton.local_scores import neighbours, pair_scores

Range = tuple[int, int]


class Task(NamedTuple):
    """Inputs and outputs of one launch, which solves blocks of one family."""

    block_of: torch.Tensor  # (S,)
    stride: torch.Tensor  # (S,), see `PlacedPlan`
    labels: torch.Tensor  # (N, S)
    weights: torch.Tensor  # (1|N,)
    local: torch.Tensor  # (n, S, L) scores given the labels around the blocks
    value: torch.Tensor  # (N, B)
    residual: torch.Tensor  # (N, S, 1, L)
    pairs: torch.Tensor  # derivatives with respect to the edges' scores: (n, E), or (n, E, L, L)
    n_edges: int
    n_blocks: int
    weight_image: int  # stride between images


@triton.jit
def local_scores(unary, pairs, labels, stride, block_of, n, i, valid, SIZES: tl.constexpr):
    """Return the unaries of sites plus the pairwise scores with their neighbours' labels, (ITEMS, LABELS).

    Labels beyond L score -inf.  ``unary`` and ``labels`` point to the image's site 0; labels of consecutive sites are
    ``stride`` elements apart.  Neighbours with label -1 are ignored; so are those in the same block, if ``block_of`` is
    given.
    """
    N_LABELS: tl.constexpr = SIZES.n_labels
    k = tl.arange(0, SIZES.labels)[None, :]
    held = valid[:, None] & (k < N_LABELS)
    scores = tl.load(unary + i[:, None] * N_LABELS + k, mask=held, other=0.0)
    slot, degree = neighbours(pairs, i, valid)
    step, most = 0, tl.max(degree, axis=0)
    while step < most:
        there = step < degree
        near = tl.load(pairs.neighbour + slot + step, mask=there, other=0).to(tl.int64)
        if block_of is not None:
            block = tl.load(block_of + i, mask=valid, other=0)
            there = there & (tl.load(block_of + near, mask=there, other=0) != block)
        label = tl.load(labels + near * stride, mask=there, other=-1).to(tl.int32)
        known = tl.where(label >= 0, slot + step, -1)
        scores += pair_scores(pairs, n, known[:, None], k, label[:, None], SIZES)
        step += 1
    return tl.where(k < N_LABELS, scores, float("-inf"))
