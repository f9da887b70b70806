"""Means over pixels of like colours, a step at a time; see the reference."""

from __future__ import annotations

from typing import Any

import torch


def guided_mean(
    values: torch.Tensor,
    image: torch.Tensor,
    counted: torch.Tensor,
    steps: Any,
    sharpness: Any,
    out: torch.Tensor,
    begin: int,
    stop: int,
) -> None:
    """Fill rows ``begin`` to ``stop`` of ``out`` (H, W, K); ``steps`` (R, 2) are of NumPy, all else tensors."""
    height, width = counted.shape
    total, weights = values[begin:stop].clone(), torch.ones_like(values[begin:stop, :, :1])
    for down, right in steps.tolist():
        top, bottom = max(begin, -down), min(stop, height - down)
        left, end = max(0, -right), min(width, width - right)
        if top >= bottom or left >= end:
            continue
        here = slice(top, bottom), slice(left, end)
        there = slice(top + down, bottom + down), slice(left + right, end + right)
        squares = ((image[here] - image[there]) ** 2).sum(dim=-1, keepdim=True)
        weight = torch.exp(squares * -float(sharpness)) * counted[there][..., None]
        inside = slice(top - begin, bottom - begin), here[1]
        total[inside] += weight * values[there]
        weights[inside] += weight
    out[begin:stop] = total / weights
