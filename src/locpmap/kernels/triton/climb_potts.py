"""LocPMAP's climb on a 4-connected grid with Potts weights, two labels or more, in the lazy noise scheme.

All samples climb at once: a sweep is a launch for each colour, and reads the perturbed scores once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from locpmap.kernels.perturbation import LOGISTIC, Perturbation
from locpmap.kernels.triton.perturb import LAZY, begin, perturb
from locpmap.kernels.triton.sweeping import sweep_until_still

BLOCK = 256


def climb_potts(
    unary: torch.Tensor,
    right: torch.Tensor,
    down: torch.Tensor,
    temperature: float,
    k0: int,
    k1: int,
    first_image: int,
    first_sample: int,
    start: int,
    given: torch.Tensor,
    row: int,
    column: int,
    full_width: int,
    max_sweeps: int,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Climb for every image and sample; fills ``labels`` (n, S, R).

    Returns the last sweep that changed anything, (n, R).
    """
    n_images, _, n_labels = unary.shape
    n_samples, height, width = labels.shape[2], right.shape[1], down.shape[2]
    site_id = global_sites(height, width, row, column, full_width, unary.device)
    noise = Perturbation(LOGISTIC if n_labels == 2 else LAZY, temperature, k0, k1)
    scores = perturb(unary, site_id, noise, first_image, first_sample, n_samples)
    begin(unary, scores, site_id, noise, start, given, first_image, first_sample, labels)
    changed = torch.zeros((n_images, n_samples), dtype=torch.int32, device=unary.device)
    per_row = (width + 1) // 2
    grid = (n_images * triton.cdiv(height * per_row * n_samples, BLOCK),)
    apart = (right.stride(0) if len(right) > 1 else 0, down.stride(0) if len(down) > 1 else 0)

    def sweep(number: int) -> None:
        for colour in (0, 1):
            shift = (row + column + colour) % 2
            where = (height, width, n_samples, n_labels, number, shift)
            _half_sweep[grid](scores, labels, right, down, *apart, changed, *where, BLOCK)

    return sweep_until_still(sweep, changed, max_sweeps)


def global_sites(height: int, width: int, row: int, column: int, full_width: int, device: torch.device) -> torch.Tensor:
    """The sites of a window in the numbering of the whole grid, (S,) int64."""
    rows = torch.arange(row, row + height, device=device)[:, None]
    return (rows * full_width + torch.arange(column, column + width, device=device)).flatten()


@triton.jit
def _half_sweep(
    scores_ptr,
    labels_ptr,
    right_ptr,
    down_ptr,
    right_apart,
    down_apart,
    changed_ptr,
    height,
    width,
    n_samples,
    N_LABELS: tl.constexpr,
    number,
    shift,
    BLOCK: tl.constexpr,
):
    """The sites of one colour: those whose row and column add up to ``shift``, modulo 2."""
    per_row = (width + 1) // 2
    per_image = (height * per_row * n_samples + BLOCK - 1) // BLOCK
    n = (tl.program_id(0) // per_image).to(tl.int64)
    lane = (tl.program_id(0) % per_image) * BLOCK + tl.arange(0, BLOCK)
    r, place = lane % n_samples, lane // n_samples
    i = place // per_row
    j = 2 * (place % per_row) + ((i + shift) & 1)
    inside = (i < height) & (j < width)
    # A sample that the last sweep left as it was is at its maximum.
    inside = inside & (tl.load(changed_ptr + n * n_samples + r, mask=inside, other=0) >= number - 1)
    here = (n * height + i) * width + j
    y = labels_ptr + here * n_samples + r
    across, along = n_samples, width * n_samples
    left = tl.load(y - across, mask=inside & (j > 0), other=0)
    right = tl.load(y + across, mask=inside & (j + 1 < width), other=0)
    up = tl.load(y - along, mask=inside & (i > 0), other=0)
    down = tl.load(y + along, mask=inside & (i + 1 < height), other=0)
    beside = right_ptr + n * right_apart + i * (width - 1) + j
    below = down_ptr + n * down_apart + i * width + j
    w_left = tl.load(beside - 1, mask=inside & (j > 0), other=0.0)
    w_right = tl.load(beside, mask=inside & (j + 1 < width), other=0.0)
    w_up = tl.load(below - width, mask=inside & (i > 0), other=0.0)
    w_down = tl.load(below, mask=inside & (i + 1 < height), other=0.0)
    mine = tl.load(y, mask=inside, other=0).to(tl.int32)
    score = scores_ptr + here * N_LABELS * n_samples + r
    best = tl.full([BLOCK], float("-inf"), scores_ptr.dtype.element_ty)
    kept = best
    label = mine
    for k in range(N_LABELS):
        total = tl.load(score + k * n_samples, mask=inside, other=float("-inf"))
        total += tl.where(left == k, w_left, 0.0) + tl.where(right == k, w_right, 0.0)
        total += tl.where(up == k, w_up, 0.0) + tl.where(down == k, w_down, 0.0)
        label = tl.where(total > best, k, label)
        best = tl.maximum(best, total)
        kept = tl.where(mine == k, total, kept)
    better = inside & (best > kept)
    tl.store(y, label.to(labels_ptr.dtype.element_ty), mask=better)
    tl.store(changed_ptr + n * n_samples + r, number + tl.zeros([BLOCK], tl.int32), mask=better)
