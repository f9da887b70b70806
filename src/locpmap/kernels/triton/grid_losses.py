"""Losses of the sites of grids given labels around them, from what networks give.

A site's loss is ``-log of the mean over m of p(y_i | y^m)``, y^1..y^M being labels of its neighbours; see the
reference's ``site_likelihood``.  Here scores of labels and of pairs come as they are, not from features.

Scores and labels are read once, a number per site is written.  Lanes go along the pixels of an image, programs from
tile to tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_PROGRAMS = 4224
CELLS = 256  # sites × labels of a tile, but no fewer than a warp's sites: a thread has all labels of a site
LABELS_OF_A_WARP = 32


class Terms(NamedTuple):
    """Pairwise scores along one step, or their slopes, as kernels take them; strides of axes of length 1 are 0."""

    score: Tensor  # (1|N, 1|H', 1|W') or with (K, K) appended
    image: int
    row: int
    column: int
    first: int  # from one label of the edge's first end to the next
    second: int


def grid_losses(
    scores: Tensor, edges: Sequence[Tensor], labels: Tensor, samples: Tensor, steps: Sequence[int]
) -> Tensor:
    """The loss of every site, (N, H, W); 0 where void.

    Args:
        scores: (N, H, W, K), of any strides.
        edges: One per step: weights where labels agree, (1|N, 1|H', 1|W'), or tables, (K, K) appended.
        labels: (N, H, W) int64, -1 where void.
        samples: (M, N, H, W) int64; what is not a label is nobody's neighbour.
        steps: Rows down and columns right, one pair after another.
    """
    loss = torch.empty(labels.shape, dtype=scores.dtype, device=scores.device)
    scores, labels, samples = in_lines(scores), labels.contiguous(), samples.contiguous()
    grid, sizes, constants = launch(scores, edges, samples, steps)
    terms = tuple(map(terms_of, edges))
    _grid_losses[grid](scores, terms, labels, samples, loss, *sizes, **constants)
    return loss


def in_lines(scores: Tensor) -> Tensor:
    """The scores with equal distances from pixel to pixel, as images have them with channels first or last."""
    regular = scores.stride(1) == scores.shape[2] * scores.stride(2) and 0 not in scores.stride()
    return scores if regular else scores.contiguous()


def terms_of(edge: Tensor) -> Terms:
    """Terms along a step with their strides."""
    strides = [edge.stride(axis) if edge.shape[axis] > 1 else 0 for axis in range(edge.dim())]
    return Terms(edge, *(strides + [0] * 5)[:5])


def launch(
    scores: Tensor, edges: Sequence[Tensor], samples: Tensor, steps: Sequence[int], least: int = 1
) -> tuple[tuple[int], tuple[int, ...], dict[str, Any]]:
    """The grid of a launch, the sizes and the constants of both kernels."""
    n_images, height, width, n_labels = scores.shape
    constants = constants_of(n_labels, edges, steps, least)
    n_tiles = n_images * triton.cdiv(height * width, constants["ITEMS"])
    sizes = (n_images, height, width, len(samples), n_tiles, *(scores.stride(axis) for axis in (0, 2, 3)))
    constants |= {"LOG_SAMPLES": math.log(len(samples)), "ONE_SAMPLE": len(samples) == 1}
    return (min(MAX_PROGRAMS // constants["num_warps"], n_tiles),), sizes, constants


def constants_of(n_labels: int, edges: Sequence[Tensor], steps: Sequence[int], least: int = 1) -> dict[str, Any]:
    """What kernels are compiled for, with at least so many lanes for labels."""
    lanes = max(least, triton.next_power_of_2(n_labels))
    warps = max(1 if least == 1 else 4, lanes // LABELS_OF_A_WARP)  # several multiply matrices better than one
    return {
        "STEPS": tuple(zip(steps[::2], steps[1::2], strict=True)),
        "TABLES": tuple(edge.dim() == 5 for edge in edges),
        "N_STEPS": len(edges),
        "N_LABELS": n_labels,
        "LABELS": lanes,
        "ITEMS": max(32, warps * CELLS // lanes),
        "num_warps": warps,
    }


@triton.jit
def along(row, column, inside, height, width, DOWN: tl.constexpr, RIGHT: tl.constexpr, END: tl.constexpr):
    """Whether there is a neighbour along a step, its pixel, and the row and column of the edge there.

    ``END`` is 0 where the sites are the edges' first ends.
    """
    away: tl.constexpr = 1 - 2 * END
    there_row, there_column = row + away * DOWN, column + away * RIGHT
    there = inside & (there_row >= 0) & (there_row < height) & (there_column >= 0) & (there_column < width)
    left: tl.constexpr = -RIGHT if RIGHT < 0 else 0  # the first column of the first ends
    top: tl.constexpr = -DOWN if DOWN < 0 else 0
    if END == 0:
        return there, there_row * width + there_column, row - top, column - left
    else:
        return there, there_row * width + there_column, there_row - top, there_column - left


@triton.jit
def edge_at(terms, n, row, column):
    """Pointers to the terms of edges."""
    return terms.score + n * terms.image + row.to(tl.int64) * terms.row + column.to(tl.int64) * terms.column


@triton.jit
def local_scores(
    alone,
    terms,
    around_ptr,
    n,
    row,
    column,
    inside,
    height,
    width,
    STEPS: tl.constexpr,
    TABLES: tl.constexpr,
    N_STEPS: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
):
    """The scores of labels with what the image's labels around add to them, (ITEMS, LABELS)."""
    k = tl.arange(0, LABELS)[None, :]
    scores = alone
    for s in tl.static_range(N_STEPS):
        for end in tl.static_range(2):
            there, pixel, at_row, at_column = along(row, column, inside, height, width, STEPS[s][0], STEPS[s][1], end)
            other = tl.load(around_ptr + pixel, mask=there, other=-1).to(tl.int32)
            at = edge_at(terms[s], n, at_row, at_column)
            if TABLES[s]:
                there = there & (other >= 0) & (other < N_LABELS)
                own_label = terms[s].first if end == 0 else terms[s].second
                other_label = terms[s].second if end == 0 else terms[s].first
                cell = (at + other * other_label)[:, None] + k * own_label
                scores += tl.load(cell, mask=there[:, None] & (k < N_LABELS), other=0.0)
            else:
                weight = tl.load(at, mask=there, other=0.0)
                scores += tl.where(k == other[:, None], weight[:, None], 0.0)
    return scores


@triton.jit
def log_conditionals(scores):
    """``log p(k | neighbours)``, (ITEMS, LABELS), from local scores, -inf beyond K."""
    scores -= tl.max(scores, axis=1, keep_dims=True)
    return scores - tl.log(tl.sum(tl.exp(scores), axis=1, keep_dims=True))


@triton.jit
def _log_sum(peak, mass, log_true):
    """A logarithm of a sum, as its largest term and the rest, with one more term; terms may be -inf."""
    higher = tl.maximum(peak, log_true)
    finite = tl.where(higher > float("-inf"), higher, 0.0)
    return higher, mass * tl.exp(peak - finite) + tl.exp(log_true - finite)


@triton.jit
def log_mean_true(
    alone,
    terms,
    samples_ptr,
    sample_size,
    is_true,
    n,
    row,
    column,
    inside,
    height,
    width,
    n_samples,
    STEPS: tl.constexpr,
    TABLES: tl.constexpr,
    N_STEPS: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """``log Σ_m p(y_i | y^m)``, (ITEMS,)."""
    peak, mass = tl.full([ITEMS], float("-inf"), alone.dtype), tl.zeros([ITEMS], alone.dtype)
    m = 0
    while m < n_samples:
        around = samples_ptr + m * sample_size
        scores = local_scores(
            alone,
            terms,
            around,
            n,
            row,
            column,
            inside,
            height,
            width,
            STEPS,
            TABLES,
            N_STEPS,
            N_LABELS,
            LABELS,
        )
        log_p = log_conditionals(scores)
        peak, mass = _log_sum(peak, mass, tl.sum(tl.where(is_true, log_p, 0.0), axis=1))
        m += 1
    return tl.where(peak > float("-inf"), peak, 0.0) + tl.log(mass)


@triton.jit
def load_tile(
    tile,
    scores_ptr,
    labels_ptr,
    height,
    width,
    image,
    pixel,
    label,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    """A tile's image, pixels, rows, columns, which there are, their true labels, and their scores alone."""
    per_image = (height * width + ITEMS - 1) // ITEMS
    n = (tile // per_image).to(tl.int64)
    p = (tile % per_image) * ITEMS + tl.arange(0, ITEMS)
    inside = p < height * width
    k = tl.arange(0, LABELS)[None, :]
    true = tl.load(labels_ptr + n * height * width + p, mask=inside, other=-1).to(tl.int32)
    places = scores_ptr + n * image + p.to(tl.int64)[:, None] * pixel + k.to(tl.int64) * label
    alone = tl.load(places, mask=inside[:, None] & (k < N_LABELS), other=float("-inf"))
    alone = tl.where(inside[:, None] | (k > 0), alone, 0.0)  # so that sites beyond the image have some label
    return n, p, p // width, p % width, inside, true, alone


@triton.jit(do_not_specialize=["n_images", "height", "width", "n_samples", "n_tiles"])
def _grid_losses(
    scores_ptr,
    terms,
    labels_ptr,
    samples_ptr,
    loss_ptr,
    n_images,
    height,
    width,
    n_samples,
    n_tiles,
    image,
    pixel,
    label,
    STEPS: tl.constexpr,
    TABLES: tl.constexpr,
    N_STEPS: tl.constexpr,
    LOG_SAMPLES: tl.constexpr,
    ONE_SAMPLE: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    tile = tl.program_id(0)
    while tile < n_tiles:
        n, p, row, column, inside, true, alone = load_tile(
            tile, scores_ptr, labels_ptr, height, width, image, pixel, label, N_LABELS, LABELS, ITEMS
        )
        of_image = n * height * width
        log_sum = log_mean_true(
            alone,
            terms,
            samples_ptr + of_image,
            n_images.to(tl.int64) * height * width,
            tl.arange(0, LABELS)[None, :] == true[:, None],
            n,
            row,
            column,
            inside,
            height,
            width,
            n_samples,
            STEPS,
            TABLES,
            N_STEPS,
            N_LABELS,
            LABELS,
            ITEMS,
        )
        tl.store(loss_ptr + of_image + p, tl.where(true >= 0, LOG_SAMPLES - log_sum, 0.0), mask=inside)
        tile += tl.num_programs(0)
