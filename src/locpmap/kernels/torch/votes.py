"""Counting the labels of samples."""

from __future__ import annotations

import torch


def votes(labels: torch.Tensor, totals: torch.Tensor, begin: int, stop: int) -> None:
    """Add one to ``totals[n, i, labels[n, i, s]]`` for sites begin..stop; labels (n, S, R), totals (n, S, L)."""
    picked = labels[:, begin:stop].long()
    totals[:, begin:stop].scatter_add_(2, picked, totals.new_ones(1).expand_as(picked))
