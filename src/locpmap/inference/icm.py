"""Iterated conditional modes: give every site its best label in turn until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from locpmap.arrays import cast
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step, at_least
from locpmap.inference.sampling import parse_start
from locpmap.kernels.perturbation import GIVEN, NONE, PERTURBED, RANDOM, Perturbation
from locpmap.kernels.threads import ranges

SWEEPS_PER_STEP = 10  # at least


@dataclass
class _State:
    labels: Any  # (N, S, 1) int16
    start: int
    given: Any
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class ICM(Decoder):
    """Greedy ascent to a local maximum of the score.

    Args:
        start: "random", "unary" (the argmax of the unaries) or an array of labels.
        max_sweeps: Sweeps after which to stop.
    """

    name: ClassVar[str] = "icm"
    on_gpu: ClassVar[bool] = True
    start: Any = "random"
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        at_least("max_sweeps", self.max_sweeps, 1)

    def init(self, problem: Problem) -> _State:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "unary": PERTURBED})
        potentials = problem.potentials
        return _State(problem.zeros((potentials.n_images, potentials.n_sites, 1), "int16"), start, given)

    def step(self, problem: Problem, state: _State) -> Step:
        sweeps = min(max(SWEEPS_PER_STEP, problem.sweeps_per_step), self.max_sweeps - state.sweeps)
        perturbation = Perturbation(NONE, 0.0, *problem.key)

        def climb(lo: int, hi: int) -> int:
            part = state.labels[lo:hi]
            common = (problem.model, perturbation, state.start, state.given, sweeps, problem.first_image, lo, hi, 0)
            return int(problem.kernels.climb_sites(*common, part).max())

        made = max(problem.threads.map(climb, ranges(problem.potentials.n_images, problem.threads.n_threads)))
        state.sweeps += made
        if made == sweeps:
            state.start, state.given = GIVEN, cast(state.labels[:, :, 0], "int64")
        return Step(state.sweeps, self.max_sweeps, converged=made < sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        return Outcome(state.labels[:, :, 0], n_sweeps=state.sweeps)
