"""Slopes of the losses of the sites of grids: by the scores of labels and by those of pairs.

Scores and labels are read once more, the slopes written once.  A term of one edge gets a part from either end; a term
that all edges share is added up by each program for itself, then over the programs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from locpmap.kernels.triton.grid_losses import (
    along,
    edge_at,
    in_lines,
    launch,
    load_tile,
    local_scores,
    log_conditionals,
    log_mean_true,
    terms_of,
)

LEAST_OF_A_PRODUCT = 16  # rows and columns that matrices must have to be multiplied
FEW_LABELS = 4  # whose tables a thread can hold


def grid_loss_slopes(
    upstream: Tensor,
    scores: Tensor,
    edges: Sequence[Tensor],
    labels: Tensor,
    samples: Tensor,
    steps: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor]]:
    """Derivatives by the scores and by those edges' terms that are wanted (others come back empty).

    ``upstream`` (N, H, W) is the derivative by each loss.
    """
    n_labels = scores.shape[3]
    scores, labels, samples = in_lines(scores), labels.contiguous(), samples.contiguous()
    slope = torch.empty_like(scores)
    shared_table = any(edge.numel() == n_labels**2 and edge.dim() == 5 for edge in edges)
    few = n_labels <= FEW_LABELS
    least = LEAST_OF_A_PRODUCT if shared_table and any(wanted) and not few else 1
    grid, sizes, constants = launch(scores, edges, samples, steps, least)
    ways, pulls = [], []
    for edge, down, right, want in zip(edges, steps[::2], steps[1::2], wanted, strict=True):
        shared = edge.shape[:3] == (1, 1, 1)
        if not want:
            shape: tuple[int, ...] = (0,)
        elif shared:
            shape = (grid[0] * 2, 1, 1, *edge.shape[3:])  # of every program, there and back
        else:
            shape = (len(labels), *(max(0, n - abs(by)) for n, by in zip(labels.shape[1:], (down, right), strict=True)))
            shape += tuple(edge.shape[3:])
        ways.append((want, shared))
        pulls.append(torch.zeros(shape, dtype=scores.dtype, device=scores.device))
    _grid_loss_slopes[grid](
        *(scores, tuple(map(terms_of, edges)), labels, samples, upstream, slope, tuple(map(terms_of, pulls))),
        *(*sizes, *upstream.stride(), *(slope.stride(axis) for axis in (0, 2, 3))),
        **constants,
        WAYS=tuple(ways),
        FEW=few,
    )
    # Terms for all images, or for all edges, take the sum of what each would take.
    given = zip(pulls, edges, wanted, strict=True)
    return slope, [pull.sum_to_size(edge.shape) if want else pull for pull, edge, want in given]


@triton.jit(do_not_specialize=["n_images", "height", "width", "n_samples", "n_tiles"])
def _grid_loss_slopes(
    scores_ptr,
    terms,
    labels_ptr,
    samples_ptr,
    upstream_ptr,
    slope_ptr,
    pulls,
    n_images,
    height,
    width,
    n_samples,
    n_tiles,
    image,
    pixel,
    label,
    upstream_image,
    upstream_row,
    upstream_column,
    slope_image,
    slope_pixel,
    slope_label,
    STEPS: tl.constexpr,
    TABLES: tl.constexpr,
    N_STEPS: tl.constexpr,
    LOG_SAMPLES: tl.constexpr,
    ONE_SAMPLE: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
    WAYS: tl.constexpr,
    FEW: tl.constexpr,
):
    dtype: tl.constexpr = scores_ptr.dtype.element_ty
    k = tl.arange(0, LABELS)[None, :]
    sums = ()  # of a program: by the weight, or the table, that all edges along a step share
    for s in tl.static_range(N_STEPS):
        if WAYS[s][0] and WAYS[s][1] and TABLES[s]:
            if FEW:
                of_labels = ()  # of a neighbour, there and back
                for _ in tl.static_range(2 * N_LABELS):
                    of_labels += (tl.zeros([ITEMS, LABELS], dtype),)
                sums += (of_labels,)
            else:
                sums += (tl.zeros([LABELS, LABELS], dtype),)
        else:
            sums += (tl.zeros([ITEMS], dtype),)
    tile = tl.program_id(0)
    while tile < n_tiles:
        n, p, row, column, inside, true, alone = load_tile(
            tile, scores_ptr, labels_ptr, height, width, image, pixel, label, N_LABELS, LABELS, ITEMS
        )
        sample_size = n_images.to(tl.int64) * height * width
        around = samples_ptr + n * height * width
        is_true = k == true[:, None]
        at = upstream_ptr + n * upstream_image + row.to(tl.int64) * upstream_row + column.to(tl.int64) * upstream_column
        upstream = tl.load(at, mask=true >= 0, other=0.0)
        log_sum = tl.zeros([ITEMS], dtype)
        if not ONE_SAMPLE:
            log_sum = log_mean_true(
                alone,
                terms,
                around,
                sample_size,
                is_true,
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
        together = tl.zeros([ITEMS, LABELS], dtype)
        own = ()  # by the weights of a site's edges, there and back along each step
        for _ in tl.static_range(2 * N_STEPS):
            own += (tl.zeros([ITEMS], dtype),)
        m = 0
        while m < n_samples:
            scores = local_scores(
                alone,
                terms,
                around + m * sample_size,
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
            share = upstream
            if not ONE_SAMPLE:
                share *= tl.exp(tl.sum(tl.where(is_true, log_p, 0.0), axis=1) - log_sum)
            residual = share[:, None] * (tl.exp(log_p) - is_true.to(dtype))
            together += residual
            new_sums, new_own = (), ()
            for s in tl.static_range(N_STEPS):
                total = sums[s]
                for end in tl.static_range(2):
                    mine = own[2 * s + end]
                    if WAYS[s][0]:
                        there, there_pixel, at_row, at_column = along(
                            row, column, inside, height, width, STEPS[s][0], STEPS[s][1], end
                        )
                        other = tl.load(around + m * sample_size + there_pixel, mask=there, other=-1).to(tl.int32)
                        seen = k == other[:, None]
                        if not TABLES[s]:
                            mine += tl.sum(tl.where(seen, residual, 0.0), axis=1)
                        elif WAYS[s][1] and FEW:
                            more = ()
                            for b in tl.static_range(2 * N_LABELS):
                                if b % 2 == end:
                                    more += (total[b] + tl.where((other == b // 2)[:, None], residual, 0.0),)
                                else:
                                    more += (total[b],)
                            total = more
                        elif WAYS[s][1]:
                            first = residual if end == 0 else seen.to(dtype)
                            second = seen.to(dtype) if end == 0 else residual
                            total += tl.dot(tl.trans(first), second, input_precision="ieee", out_dtype=dtype)
                        else:
                            own_label = pulls[s].first if end == 0 else pulls[s].second
                            other_label = pulls[s].second if end == 0 else pulls[s].first
                            cell = (edge_at(pulls[s], n, at_row, at_column) + other * other_label)[:, None]
                            known = (there & (other >= 0) & (other < N_LABELS))[:, None] & (k < N_LABELS)
                            tl.atomic_add(cell + k * own_label, residual, mask=known, sem="relaxed")
                    new_own += (mine,)
                new_sums += (total,)
            sums, own = new_sums, new_own
            m += 1
        places = slope_ptr + n * slope_image + p.to(tl.int64)[:, None] * slope_pixel + k.to(tl.int64) * slope_label
        tl.store(places, together, mask=inside[:, None] & (k < N_LABELS))
        new_sums = ()
        for s in tl.static_range(N_STEPS):
            total = sums[s]
            if WAYS[s][0] and not TABLES[s]:
                if WAYS[s][1]:
                    total += own[2 * s] + own[2 * s + 1]
                else:
                    for end in tl.static_range(2):
                        there, there_pixel, at_row, at_column = along(
                            row, column, inside, height, width, STEPS[s][0], STEPS[s][1], end
                        )
                        # An edge gets two parts, one from either end: their sum does not depend on which comes first.
                        tl.atomic_add(edge_at(pulls[s], n, at_row, at_column), own[2 * s + end], there, sem="relaxed")
            new_sums += (total,)
        sums = new_sums
        tile += tl.num_programs(0)
    for s in tl.static_range(N_STEPS):
        if WAYS[s][0] and WAYS[s][1]:
            cell = pulls[s].score + 2 * tl.program_id(0) * pulls[s].image
            if not TABLES[s]:
                tl.store(cell, tl.sum(sums[s], axis=0))
            elif FEW:
                for b in tl.static_range(2 * N_LABELS):
                    own_label = pulls[s].first if b % 2 == 0 else pulls[s].second
                    other_label = pulls[s].second if b % 2 == 0 else pulls[s].first
                    column = cell + (b % 2) * pulls[s].image + (b // 2) * other_label + k * own_label
                    tl.store(column, tl.sum(sums[s][b], axis=0, keep_dims=True), mask=k < N_LABELS)
            else:
                a = tl.arange(0, LABELS)[:, None]
                held = (a < N_LABELS) & (k < N_LABELS)
                tl.store(cell + a * pulls[s].first + k * pulls[s].second, sums[s], mask=held)
