"""Sweeps of sum-product in the linear domain, without exponentials; see the reference and `sweep_messages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.messages import steps
from locpmap.kernels.triton.sweep_messages import sweep_messages


def pass_linear(
    model: Model,
    order: Any,
    messages: Any,
    dirty: Any,
    linear: Any,
    weights: Any,
    couplings: Any,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
    n_sweeps: int = 1,
    ends: Sequence[int] | None = None,
    grid: tuple[int, int, int] | None = None,
    undamped: int = 0,
    made: int = 0,
) -> torch.Tensor:
    """Visit positions begin..stop of ``order`` in those images of lo..hi that are kept in the linear domain.

    Beyond the reference: up to ``n_sweeps`` times, as in `pass_messages`.
    """
    feature_image, feature_edge = steps(couplings)
    pairs = pairs_of(model)._replace(features=couplings, feature_image=feature_image, feature_edge=feature_edge)
    state = (weights, pairs, order, messages, dirty, linear, None, damping, tolerance)
    algebra = {"LINEAR": True, "MAXIMISE": False, "N_FEATURES": 1}
    more = (ends, grid, undamped, made)
    return sweep_messages(model, *state, (lo, hi, begin, stop), n_sweeps, algebra, *more)
