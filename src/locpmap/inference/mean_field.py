"""Mean field: fit a product of independent distributions by coordinate ascent on a lower bound of log Z."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from locpmap.arrays import Array, best_labels, cast, label_sums, namespace
from locpmap.errors import InputError, whole_number, within
from locpmap.inference.decoder import Decoder, Locality, Outcome, Problem, Step
from locpmap.kernels.model import UNVISITED
from locpmap.result import BoundKind


@dataclass
class _State:
    beliefs: Array  # (N, S, L)
    marks: Array  # (N, S), marks sites whose neighbours changed since their last update
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class MeanField(Decoder):
    """Mean field: independent distributions of the sites, and a lower bound on log Z.

    Args:
        max_sweeps (int, default 100): Number of sweeps after which to stop.
        tolerance (float, default 1e-5): The run has converged when no probability changes by more than this.
        start (str, default "uniform"): Initial distributions.  "uniform" is uniform over allowed labels, and
            independent of how scores are split between unary and pairwise terms.  "unary" is the softmax of the
            unaries.

    Notes:
        A sweep costs O(E·L) for Potts models and O(E·L²) for others.  Sites whose neighbours have not changed are
        skipped.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result, exact = lp.infer(pot, lp.MeanField()), lp.infer(pot, "exact")
        >>> bool(result.log_partition <= exact.log_partition)
        True

    See Also:
        :class:`LBP`, :class:`TRW`
    """

    name: ClassVar[str] = "mean_field"
    on_gpu: ClassVar[bool] = True
    max_sweeps: int = 100
    tolerance: float = 1e-5
    start: str = "uniform"

    def __post_init__(self) -> None:
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("tolerance", self.tolerance, 0)
        if self.start not in ("uniform", "unary"):
            raise InputError(f"start is {self.start!r}, expected 'uniform' or 'unary'")

    def locality(self) -> Locality:
        return Locality(int(self.max_sweeps))

    def init(self, problem: Problem) -> _State:
        unary = problem.potentials.unary
        # Potts models need no more than the precision of the unaries.
        dtype = unary.dtype if problem.potentials.pairwise.potts else problem.kernels.precision(problem.view)
        if self.start == "uniform":
            beliefs = cast(unary > -np.inf, dtype)
        else:
            xp = namespace(unary)
            beliefs = xp.exp(cast(unary - xp.amax(unary, 2)[:, :, None], dtype))
        beliefs /= label_sums(beliefs)
        marks = problem.zeros(unary.shape[:2], "uint8")
        marks += UNVISITED
        return _State(beliefs, marks)

    def step(self, problem: Problem, state: _State) -> Step:
        n_sweeps = min(problem.sweeps_per_step, self.max_sweeps - state.sweeps)
        state_of = (state.beliefs, state.marks, float(self.tolerance))
        completed, settled = problem.kernels.mean_field(problem.view, *state_of, n_sweeps)
        state.sweeps += completed
        return Step(state.sweeps, self.max_sweeps, converged=settled)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        # The bound requires distributions that sum to 1, which single precision only approximates.
        beliefs = cast(state.beliefs, "float64")
        beliefs = beliefs / label_sums(beliefs)
        return Outcome(
            labels=best_labels(beliefs),
            probability=cast(beliefs, problem.potentials.unary.dtype),
            n_sweeps=state.sweeps,
            log_partition=problem.kernels.mean_field_bound(problem.view, beliefs),
            log_partition_kind=BoundKind.LOWER,
        )
