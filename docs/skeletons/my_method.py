"""My method: one sentence on what it computes, and how.

Copy to ``src/locpmap/inference/my_method.py``.  As it stands, it climbs from the labels with the best unary scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from locpmap.arrays import Array
from locpmap.errors import whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step
from locpmap.inference.icm import climb_once
from locpmap.kernels.perturbation import PERTURBED


@dataclass
class _State:
    """What the next step needs."""

    labels: Array | None = None  # (N, S)
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class MyMethod(Decoder):
    """My method.

    Args:
        max_sweeps (int, default 100): Number of sweeps after which to stop.
    """

    name: ClassVar[str] = "my_method"
    has_probability: ClassVar[bool] = False
    on_gpu: ClassVar[bool] = True
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        whole_number("max_sweeps", self.max_sweeps, 1)

    def init(self, problem: Problem) -> _State:
        return _State()

    def step(self, problem: Problem, state: _State) -> Step:
        drawn = climb_once(problem, PERTURBED, None, self.max_sweeps)
        state.labels, state.sweeps = drawn.labels()[:, :, 0], max(int(part.max()) for part in drawn.sweeps)
        return Step(1, 1, converged=state.sweeps < self.max_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        assert state.labels is not None
        return Outcome(state.labels, n_sweeps=state.sweeps)
