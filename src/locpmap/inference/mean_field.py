"""Mean field: the independent distribution nearest to the model, by coordinate ascent on a lower bound of log Z."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, is_tensor, namespace
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
    on_gpu: ClassVar[bool] = True
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
        dtype = unary.dtype if problem.potentials.pairwise.potts or problem.kernels.device else "float64"
        if self.start == "uniform":
            beliefs = cast(unary > -np.inf, dtype)
        else:
            xp = namespace(unary)
            beliefs = xp.exp(cast(unary - xp.amax(unary, 2)[:, :, None], dtype))
        beliefs /= _sums(beliefs)
        dirty = problem.zeros(unary.shape[:2], "uint8")
        dirty += UNVISITED
        return _State(beliefs, dirty)

    def step(self, problem: Problem, state: _State) -> Step:
        n_sweeps = min(problem.sweeps_per_step, self.max_sweeps - state.sweeps)
        how = (state.beliefs, state.dirty, float(self.tolerance))
        if problem.kernels.device:
            (made,) = problem.sweep(partial(problem.kernels.mean_field, n_sweeps=n_sweeps), *how)
            n_made = int(made)
        else:
            problem.sweep(problem.kernels.mean_field, *how)
            n_made = n_sweeps
        state.sweeps += n_made
        converged = n_made < n_sweeps or not bool(state.dirty.any())
        return Step(state.sweeps, self.max_sweeps, converged=converged)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        # The bound holds for what sums to 1, and single precision does so only nearly.
        beliefs = cast(state.beliefs, "float64")
        beliefs = beliefs / _sums(beliefs)
        terms = problem.zeros(beliefs.shape[:2], "float64")
        problem.sweep(problem.kernels.mean_field_bound, beliefs, terms)
        return Outcome(
            labels=beliefs.argmax(axis=2),
            probability=cast(beliefs, problem.potentials.unary.dtype),
            n_sweeps=state.sweeps,
            log_partition=terms.sum(axis=1),
            log_partition_kind=BoundKind.LOWER,
        )


def _sums(beliefs: Array) -> Array:
    """Over labels, (N, S, 1): on the CPU one label after the other, which is several times as fast for few labels.

    So a site's sum does not depend on its place in the array, as it would by a product with ones.
    """
    if is_tensor(beliefs):
        return beliefs.sum(axis=2)[:, :, None]
    total: Array = reduce(np.add, np.moveaxis(beliefs, 2, 0))
    return total[:, :, None]
