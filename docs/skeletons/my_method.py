"""My method: one sentence on what it computes, and how.

Copy to ``src/locpmap/inference/my_method.py``.  As it stands, it is the softmax of each site's unary scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import whole_number
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step


@dataclass
class _State:
    """What the next step needs."""

    probability: Array  # (N, S, L)
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class MyMethod(Decoder):
    """My method.

    Args:
        max_sweeps (int, default 1): Number of sweeps after which to stop.
    """

    name: ClassVar[str] = "my_method"
    max_sweeps: int = 1

    def __post_init__(self) -> None:
        whole_number("max_sweeps", self.max_sweeps, 1)

    def init(self, problem: Problem) -> _State:
        return _State(np.zeros(problem.potentials.unary.shape))

    def step(self, problem: Problem, state: _State) -> Step:
        unary = np.asarray(problem.potentials.unary, np.float64)
        weights = np.exp(unary - unary.max(axis=2, keepdims=True))
        state.probability = weights / weights.sum(axis=2, keepdims=True)
        state.sweeps += 1
        return Step(state.sweeps, self.max_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        probability = state.probability.astype(problem.potentials.unary.dtype)
        return Outcome(probability.argmax(axis=2), probability=probability, n_sweeps=state.sweeps)
