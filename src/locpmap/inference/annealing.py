"""Simulated annealing: Gibbs sampling of p(y)^(1/t) while t falls, then greedy ascent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from locpmap.arrays import namespace
from locpmap.errors import InputError
from locpmap.inference.best import Best
from locpmap.inference.decoder import Decoder, Outcome, Problem, Step, at_least, within
from locpmap.inference.gibbs import start_labels, sweep_chain
from locpmap.kernels.perturbation import GIVEN, NONE, Perturbation
from locpmap.kernels.reference.gibbs import NOTHING
from locpmap.kernels.threads import ranges
from locpmap.result import Status

Array = npt.NDArray[Any]
SWEEPS_PER_STEP = 8  # on a GPU: all their labellings are kept until they have been scored


@dataclass
class _State:
    labels: Array  # (N, S)
    best: Best
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class Annealing(Decoder):
    """One labelling: the best that a cooling chain met, climbed to a local maximum.

    Args:
        n_sweeps: Sweeps of the chain; the temperature falls by the same factor after each.
        start_temperature: Temperature of the first sweep.
        end_temperature: Temperature of the last.
        start: "random" (uniform over allowed labels) or an array of labels.
        max_sweeps: Greedy sweeps after which the final ascent stops.
    """

    name: ClassVar[str] = "annealing"
    on_gpu: ClassVar[bool] = True
    at_end: ClassVar[Status] = Status.COMPLETE
    n_sweeps: int = 100
    start_temperature: float = 3.0
    end_temperature: float = 0.02
    start: Any = "random"
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        at_least("n_sweeps", self.n_sweeps, 1)
        at_least("max_sweeps", self.max_sweeps, 1)
        within("start_temperature", self.start_temperature, 0, open_low=True)
        within("end_temperature", self.end_temperature, 0, open_low=True)
        if self.end_temperature > self.start_temperature:
            raise InputError(
                f"end_temperature is {self.end_temperature},"
                f" expected at most start_temperature = {self.start_temperature}"
            )

    def init(self, problem: Problem) -> _State:
        return _State(start_labels(self.start, problem), Best.start(problem))

    def step(self, problem: Problem, state: _State) -> Step:
        cooling = (self.end_temperature / self.start_temperature) ** (1 / max(self.n_sweeps - 1, 1))
        how = (problem.zeros((0, 0, 0), "float64"), NOTHING, self.start_temperature * cooling**state.sweeps)
        n_sweeps = 1
        if problem.kernels.device:
            n_sweeps = min(SWEEPS_PER_STEP, self.n_sweeps - state.sweeps)
            met = problem.empty((n_sweeps, *state.labels.shape), "int16")
            sweep_chain(problem, state.labels, *how, state.sweeps + 1, n_sweeps=n_sweeps, cooling=cooling, kept=met)
            state.best.offer(problem, _best_of(problem, met))
        else:
            sweep_chain(problem, state.labels, *how, state.sweeps + 1)
            state.best.offer(problem, state.labels)
        state.sweeps += n_sweeps
        return Step(state.sweeps, self.n_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        climbed = problem.empty((*state.labels.shape, 1), "int16")
        how = (Perturbation(NONE, 0.0, *problem.key), GIVEN, state.best.labels, self.max_sweeps, problem.first_image)

        def climb(lo: int, hi: int) -> Array:
            return problem.kernels.climb_sites(problem.model, *how, lo, hi, 0, climbed[lo:hi])

        problem.threads.map(climb, ranges(len(climbed), problem.threads.n_threads))
        return Outcome(climbed[:, :, 0], n_sweeps=state.sweeps)


def _best_of(problem: Problem, labellings: Any) -> Any:
    """For each image the first of the labellings (K, N, S) that scores highest, (N, S)."""
    terms = problem.zeros(tuple(labellings.shape), "float64")
    for labels, parts in zip(labellings, terms, strict=True):
        problem.sweep(problem.kernels.score_terms, labels, parts)
    xp = namespace(terms)
    best = terms.sum(axis=2).argmax(axis=0)
    return labellings[best, xp.arange(len(best), device=best.device)]
