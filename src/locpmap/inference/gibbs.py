"""Gibbs sampling: a Markov chain of single-site draws whose long-run average is the model itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, namespace, place_beside
from locpmap.errors import InputError
from locpmap.inference.decoder import Outcome, Problem, Step, at_least
from locpmap.inference.sampling import Sampler, parse_start
from locpmap.kernels.perturbation import NONE, RANDOM, Perturbation
from locpmap.kernels.reference.gibbs import CONDITIONAL, NOTHING, VOTES

Array = npt.NDArray[Any]


@dataclass
class _State:
    labels: Array  # (N, S)
    totals: Array  # (N, S, L) votes or probabilities so far
    kept: list[Array] = field(default_factory=list)  # (samples, N, S) per step
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class Gibbs(Sampler):
    """Label shares along one chain per image.

    Args:
        n_samples: Labellings that count.
        burn_in: Sweeps before the first of them.
        thin: Sweeps from one to the next.
        start: "random" (uniform over allowed labels) or an array of labels.
        probability: "votes" (the share of the samples) or "conditional" (the mean of the probabilities with which they
            were drawn: never 0 for a label that is allowed, but by underflow; less variance).
        keep_samples: Return the samples themselves, (M, ..).
    """

    name: ClassVar[str] = "gibbs"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 100
    burn_in: int = 100
    thin: int = 1
    start: Any = "random"
    probability: str = "votes"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        at_least("n_samples", self.n_samples, 1)
        at_least("burn_in", self.burn_in, 0)
        at_least("thin", self.thin, 1)
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")

    def init(self, problem: Problem) -> _State:
        return _State(start_labels(self.start, problem), problem.zeros(problem.potentials.unary.shape, "float64"))

    def step(self, problem: Problem, state: _State) -> Step:
        total = self.burn_in + self.n_samples * self.thin
        kept = self._advance(problem, state, total - state.sweeps, counted=True, keep=self.keep_samples)
        if self.keep_samples:
            state.kept.append(kept)
        return Step(state.sweeps, total)

    def draw(self, problem: Problem, state: _State, most: int, *, counted: bool, keep: bool) -> Any:
        drawn = self._samples_at(state.sweeps)
        while True:
            upto = self.burn_in + (drawn + most) * self.thin
            samples = self._advance(problem, state, upto - state.sweeps, counted=counted, keep=keep)
            if self._samples_at(state.sweeps) > drawn:
                return samples

    def _advance(self, problem: Problem, state: _State, most: int, *, counted: bool, keep: bool) -> Any:
        """Make the next sweeps, at most so many; return the samples among them, (R, N, S), if they are kept."""
        n_sweeps = min(problem.sweeps_per_step, most)
        n_samples = self._samples_at(state.sweeps + n_sweeps) - self._samples_at(state.sweeps)
        adds = (VOTES if self.probability == "votes" else CONDITIONAL) if counted else NOTHING
        kept = problem.empty((n_samples * keep, *state.labels.shape), "int16")
        chain = (problem, state.labels, state.totals)
        if problem.kernels.device:
            many = {"n_sweeps": n_sweeps, "first_counted": self.burn_in + self.thin, "thin": self.thin, "kept": kept}
            sweep_chain(*chain, adds, 1.0, state.sweeps + 1, **many)
        else:
            sweep_chain(*chain, adds if n_samples else NOTHING, 1.0, state.sweeps + 1)
            kept[:] = state.labels
        state.sweeps += n_sweeps
        return kept

    def finish(self, problem: Problem, state: _State) -> Outcome:
        n_samples = self._samples_at(state.sweeps)
        totals = state.totals
        if n_samples == 0:  # stopped during burn-in: the chain's present state is all there is
            totals = place_beside(totals, np.eye(totals.shape[2]))[state.labels]
        probability = cast(totals / max(n_samples, 1), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            n_sweeps=state.sweeps,
            n_samples=n_samples,
            samples=namespace(probability).concatenate(state.kept) if n_samples and self.keep_samples else None,
        )

    def _samples_at(self, sweeps: int) -> int:
        """How many of so many sweeps count."""
        return max(0, sweeps - self.burn_in) // self.thin


def start_labels(start: Any, problem: Problem) -> Array:
    """The chain's first labelling, (N, S)."""
    code, given = parse_start(start, problem, {"random": RANDOM})
    labels = problem.empty((problem.potentials.n_images, problem.potentials.n_sites, 1), "int16")
    how = (Perturbation(NONE, 0.0, *problem.key), code, given, 0)  # a climb that ends where it starts
    problem.kernels.climb_sites(problem.model, *how, problem.first_image, 0, len(labels), 0, labels)
    return cast(labels[:, :, 0], "int64")


def sweep_chain(
    problem: Problem, labels: Array, totals: Array, adds: int, temperature: float, sweep: int, **many: Any
) -> None:
    """Draw every site's label once, in place; with ``many``, which kernels on a GPU take, as often as that says."""
    keys = (*problem.key, sweep, problem.first_image)
    problem.sweep(partial(problem.kernels.gibbs, **many), labels, totals, adds, temperature, *keys)
