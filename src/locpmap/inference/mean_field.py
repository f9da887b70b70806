"""Mean field: the independent distribution nearest to the model, by coordinate ascent on a lower bound of log Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step, at_least, within
from locpmap.kernels.reference.messages import UNVISITED
from locpmap.result import BoundKind

Array = npt.NDArray[Any]


@dataclass
class _State:
    beliefs: Array  # (N, S, L)
    dirty: Array  # (N, S) marks of the sites of which a neighbour changed since their last update
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class MeanField(Decoder):
    """Independent beliefs, and the lower bound on log Z that they prove.

    A sweep costs O(E·L) for Potts models and O(E·L²) for others, less where neighbours have settled.

    Args:
        max_sweeps: Sweeps after which to stop.
        tolerance: Converged when no probability moves by more than this.
        start: "uniform" over allowed labels, which does not change when scores move between unary and pairwise terms,
            or "unary": the softmax of the unaries.
    """

    name: ClassVar[str] = "mean_field"
    max_sweeps: int = 100
    tolerance: float = 1e-5
    start: str = "uniform"

    def __post_init__(self) -> None:
        at_least("max_sweeps", self.max_sweeps, 1)
        within("tolerance", self.tolerance, 0)
        if self.start not in ("uniform", "unary"):
            raise InputError(f"start is {self.start!r}, expected 'uniform' or 'unary'")

    def init(self, problem: Problem) -> _State:
        unary = problem.potentials.unary
        # Sums over tables are made in double precision; for Potts models the unaries' own precision will do.
        dtype = unary.dtype if problem.potentials.pairwise.potts else np.dtype(np.float64)
        if self.start == "uniform":
            beliefs = (unary > -np.inf).astype(dtype)
        else:
            beliefs = np.exp(unary - unary.max(axis=2, keepdims=True), dtype=dtype)
        beliefs /= _sums(beliefs)
        return _State(beliefs, np.full(unary.shape[:2], UNVISITED, np.uint8))

    def step(self, problem: Problem, state: _State) -> Step:
        problem.sweep(problem.kernels.mean_field, state.beliefs, state.dirty, float(self.tolerance))
        state.sweeps += 1
        return Step(state.sweeps, self.max_sweeps, converged=not state.dirty.any())

    def finish(self, problem: Problem, state: _State) -> Outcome:
        # The bound holds for what sums to 1, and single precision does so only nearly.
        beliefs = state.beliefs.astype(np.float64)
        beliefs /= _sums(beliefs)
        terms = np.zeros(beliefs.shape[:2])
        problem.sweep(problem.kernels.mean_field_bound, beliefs, terms)
        return Outcome(
            labels=beliefs.argmax(axis=2),
            probability=beliefs.astype(problem.potentials.unary.dtype, copy=False),
            n_sweeps=state.sweeps,
            log_partition=terms.sum(axis=1),
            log_partition_kind=BoundKind.LOWER,
        )


def _sums(beliefs: Array) -> Array:
    """Over labels, (N, S, 1): as a product with ones, which is several times as fast for few labels."""
    return (beliefs @ np.ones(beliefs.shape[2], beliefs.dtype))[:, :, None]
