"""Sweeps of log-domain message passing; see the reference, and `sweep_messages` for how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from locpmap.kernels.model import Model
from locpmap.kernels.triton.local_scores import pairs_of
from locpmap.kernels.triton.sweep_messages import sweep_messages


def pass_messages(
    model: Model,
    order: Any,
    messages: Any,
    dirty: Any,
    linear: Any,
    rho: torch.Tensor | None,
    maximise: bool,
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
    copies: int = 1,
    last: torch.Tensor | None = None,
) -> torch.Tensor:
    """Visit positions begin..stop of ``order`` in images lo..hi, except those kept in the linear domain.

    Beyond the reference: up to ``n_sweeps`` times, until no site is marked, and with what else `sweep_messages` takes;
    ``rho`` may be None where it is 1 everywhere.  Returns what `sweep_messages` does.
    """
    state = (model.unary, pairs_of(model), order, messages, dirty, linear, rho, damping, tolerance)
    algebra = {"LINEAR": False, "MAXIMISE": bool(maximise), "N_FEATURES": model.features.shape[2]}
    more = (ends, grid, undamped, made, copies, last)
    return sweep_messages(model, *state, (lo, hi, begin, stop), n_sweeps, algebra, *more)
