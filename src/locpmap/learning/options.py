"""How to fit: limits, checkpoints and who takes part."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from locpmap.errors import InputError, InputTypeError, whole_number, within
from locpmap.learning.processes import ALONE, Processes


@dataclass(frozen=True)
class FitOptions:
    """Settings of a fit that rarely need a change.

    Args:
        max_iterations: Iterations of L-BFGS; held-out checks otherwise.
        tolerance: Converged when no entry of the gradient (per site, in units of the features) exceeds this.
        batch_size: Descend stochastically, on so many inputs a step, instead of by L-BFGS on all of them.
        checkpoint: A file that keeps the state every few seconds; an interrupted fit resumes from it.
        standard_errors: Whether to compute Godambe standard errors (needs at least ten inputs).
        n_threads: Threads to use, by default all cores; the result does not depend on it.
        processes: Those that learn together, of `locpmap.learning.joined_processes`.  All are given the same data, work
            on a share of the inputs each, and arrive at the same weights, those of one process but for rounding.
    """

    max_iterations: int = 200
    tolerance: float = 1e-5
    batch_size: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    standard_errors: bool = True
    n_threads: int | None = None
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        for name in ("max_iterations", "batch_size", "n_threads"):
            value = getattr(self, name)
            if value is not None or name == "max_iterations":
                whole_number(name, value, 1)
        if not isinstance(self.standard_errors, bool | np.bool_):
            raise InputTypeError(f"standard_errors is {self.standard_errors!r}, expected True or False")
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise InputTypeError(f"checkpoint is a {type(self.checkpoint).__name__}, expected a path")
        if self.checkpoint == "":
            raise InputError("checkpoint is '', expected the path of a file, or None for no checkpoints")
        if not isinstance(self.processes, Processes):
            raise InputTypeError(f"processes is {self.processes!r}, expected what joined_processes() returns")
        within("tolerance", self.tolerance, 0)
