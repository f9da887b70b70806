"""Red-black ICM for the samples of a loss: perturbed scores of grids as networks give them, neighbours near and far.

A launch is one colour of a sweep.  Whether a climb goes on is decided on the device: a launch whose last sweep changed
nothing ends at once, and nobody waits but now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from locpmap.kernels.triton.grid_losses import constants_of, local_scores, terms_of

SWEEPS_BETWEEN_QUESTIONS = 32  # whether launches still have something to do: hardly any climb takes as many


def climb_grid(scores: Tensor, edges: Sequence[Tensor], steps: Sequence[int], max_sweeps: int, labels: Tensor) -> None:
    """Improve labels, site by site, in place until nothing changes, or for ``max_sweeps``.

    Args:
        scores: (M, N, H, W, K), contiguous: those of M samples of N images.
        edges: As for :func:`~locpmap.kernels.triton.grid_losses.grid_losses`, of the images.
        steps: As there, each of an odd total.
        max_sweeps: Sweeps at most.
        labels: (M, N, H, W) int64, contiguous; what is -1 stays so, and is nobody's neighbour.
    """
    n_samples, n_images, height, width, n_labels = scores.shape
    constants = constants_of(n_labels, edges, steps)
    per_image = triton.cdiv(height * triton.cdiv(width, 2), constants["ITEMS"])
    terms = tuple(map(terms_of, edges))
    changed = torch.zeros(max_sweeps + 1, dtype=torch.int32, device=scores.device)
    changed[0] = 1
    for sweep in range(1, max_sweeps + 1):
        for colour in range(2):
            sizes = (n_images, height, width, per_image, sweep, colour)
            _climb_colour[(per_image * n_samples * n_images,)](scores, terms, labels, changed, *sizes, **constants)
        if sweep % SWEEPS_BETWEEN_QUESTIONS == 0 and not bool(changed[sweep]):
            break


@triton.jit(do_not_specialize=["n_images", "height", "width", "per_image", "sweep", "colour"])
def _climb_colour(
    scores_ptr,
    terms,
    labels_ptr,
    changed_ptr,
    n_images,
    height,
    width,
    per_image,
    sweep,
    colour,
    STEPS: tl.constexpr,
    TABLES: tl.constexpr,
    N_STEPS: tl.constexpr,
    N_LABELS: tl.constexpr,
    LABELS: tl.constexpr,
    ITEMS: tl.constexpr,
):
    if tl.load(changed_ptr + sweep - 1) == 0:
        return
    half = (width + 1) // 2
    lane = tl.program_id(0) % per_image * ITEMS + tl.arange(0, ITEMS)
    row = lane // half
    column = lane % half * 2 + (row + colour) % 2
    inside = (row < height) & (column < width)
    sample = (tl.program_id(0) // per_image).to(tl.int64)  # of an image
    n = sample % n_images
    own = sample * height * width + row * width + column
    around = labels_ptr + sample * height * width
    k = tl.arange(0, LABELS)[None, :]
    old = tl.load(labels_ptr + own, mask=inside, other=-1)
    free = old >= 0
    there = free[:, None] & (k < N_LABELS)
    alone = tl.load(scores_ptr + own[:, None] * N_LABELS + k, mask=there, other=float("-inf"))
    scores = local_scores(
        *(alone, terms, around, n, row, column, free, height, width), *(STEPS, TABLES, N_STEPS, N_LABELS, LABELS)
    )
    best = tl.argmax(scores, axis=1, tie_break_left=True).to(tl.int64)
    moves = free & (best != old) & (best < N_LABELS)  # beyond are none, which not even NaN may choose
    tl.debug_barrier()  # several warps may hold the same site: all have read its label before one changes it
    tl.store(labels_ptr + own, best, mask=moves)
    if tl.max(moves.to(tl.int32), axis=0) > 0:
        tl.store(changed_ptr + sweep, 1)
