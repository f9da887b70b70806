"""Triton version of `reference.guided_mean`: means over pixels of similar colour."""

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels.cache import cached
from locpmap.kernels.model import Array

PIXELS, LABELS = 2, 32  # per program, with all steps at once, so that their loads overlap


def guided_mean(values: Array, image: Array, counted: Array, steps: Array, sharpness: float, out: Array) -> None:
    """Fill ``out`` (H, W, K) with the means of ``values`` (H, W, K); ``steps`` is an array of the host."""
    height, width, n_labels = values.shape
    device = values.device
    moves = cached((steps,), device, lambda: torch.from_numpy(steps.astype(np.int32)).to(device, non_blocking=True))
    arrays = (values, image.contiguous(), counted.view(torch.uint8), moves, out)
    sizes = (len(steps), len(image), n_labels, PIXELS, triton.next_power_of_2(len(steps)), LABELS)
    grid = (triton.cdiv(height * width, PIXELS), triton.cdiv(n_labels, LABELS))
    _guided_mean[grid](*arrays, height, width, sharpness, *sizes)


@triton.jit
def _guided_mean(
    values,
    image,
    counted,
    steps,
    out,
    height,
    width,
    sharpness: tl.float64,
    N_STEPS: tl.constexpr,
    N_CHANNELS: tl.constexpr,
    N_LABELS: tl.constexpr,
    PIXELS: tl.constexpr,
    STEPS: tl.constexpr,
    LABELS: tl.constexpr,
):
    dtype: tl.constexpr = values.dtype.element_ty
    pixel = tl.program_id(0).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)[:, None]  # blocks are (pixel, step, label)
    row = pixel // width
    step = tl.arange(0, STEPS)[None, :]
    y = row + tl.load(steps + 2 * step, mask=step < N_STEPS, other=0)
    x = pixel - row * width + tl.load(steps + 2 * step + 1, mask=step < N_STEPS, other=0)
    near = y * width + x
    inside = (row < height) & (step < N_STEPS) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    square = tl.zeros([PIXELS, STEPS], image.dtype.element_ty)
    for channel in range(N_CHANNELS):
        plane = image + tl.cast(channel, tl.int64) * height * width
        own = tl.load(plane + pixel, mask=row < height, other=0.0)
        difference = own - tl.load(plane + near, mask=inside, other=0.0)
        square += difference * difference
    counts = tl.load(counted + near, mask=inside, other=0) > 0
    weight = tl.where(counts, tl.exp(-tl.cast(sharpness, dtype) * square), 0.0).to(dtype)
    label = tl.program_id(1) * LABELS + tl.arange(0, LABELS)[None, :]
    there = values + near[:, :, None] * N_LABELS + label[None, :, :]
    others = tl.load(there, mask=inside[:, :, None] & (label < N_LABELS)[None, :, :], other=0.0)
    here, known = pixel * N_LABELS + label, (row < height) & (label < N_LABELS)
    total = tl.load(values + here, mask=known, other=0.0) + tl.sum(weight[:, :, None] * others, 1)
    tl.store(out + here, total / (1.0 + tl.sum(weight, 1))[:, None], mask=known)
