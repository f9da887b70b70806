"""Gibbs sampling: a Markov chain of single-site draws whose long-run average is the model itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Array, cast, namespace, place_beside
from locpmap.errors import InputError, whole_number
from locpmap.inference.decoder import Outcome, Problem, Step
from locpmap.inference.icm import climb_once
from locpmap.inference.sampling import Sampler, parse_start
from locpmap.kernels.model import CONDITIONAL, NOTHING, VOTES
from locpmap.kernels.perturbation import RANDOM
from locpmap.kernels.spec import Chain


@dataclass
class _State:
    chain: Chain
    samples: list[Array] = field(default_factory=list)  # (samples, N, S) per step


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
    unbounded: ClassVar[str] = "every sample goes on from the last, so that all sweeps add up"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 100
    burn_in: int = 100
    thin: int = 1
    start: Any = "random"
    probability: str = "votes"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("burn_in", self.burn_in, 0)
        whole_number("thin", self.thin, 1)
        if self.probability not in ("votes", "conditional"):
            raise InputError(f"probability is {self.probability!r}, expected 'votes' or 'conditional'")

    def init(self, problem: Problem) -> _State:
        labels, totals = start_labels(self.start, problem), problem.zeros(problem.potentials.unary.shape, "float64")
        counted = {"first_counted": self.burn_in + self.thin, "thin": self.thin}
        return _State(Chain(labels, problem.key, problem.first_image, totals, **counted))

    def step(self, problem: Problem, state: _State) -> Step:
        total = self.burn_in + self.n_samples * self.thin
        samples = self._advance(problem, state, total, counted=True, keep=self.keep_samples)
        if self.keep_samples:
            state.samples.append(samples)
        return Step(state.chain.sweeps, total)

    def draw(self, problem: Problem, state: _State, most: int, *, counted: bool, keep: bool) -> Any:
        drawn = self._samples_at(state.chain.sweeps)
        while True:
            upto = self.burn_in + (drawn + most) * self.thin
            samples = self._advance(problem, state, upto, counted=counted, keep=keep)
            if self._samples_at(state.chain.sweeps) > drawn:
                return samples

    def _advance(self, problem: Problem, state: _State, upto: int, *, counted: bool, keep: bool) -> Any:
        """Make some of the next sweeps, up to that one; return the samples among them, (R, N, S), if they are kept."""
        n_sweeps = min(problem.sweeps_per_step, upto - state.chain.sweeps)
        state.chain.adds = (VOTES if self.probability == "votes" else CONDITIONAL) if counted else NOTHING
        return problem.kernels.gibbs(problem.view, state.chain, n_sweeps, keep=keep)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        n_samples, totals = self._samples_at(state.chain.sweeps), state.chain.totals
        assert totals is not None
        if n_samples == 0:  # stopped during burn-in: the chain's present state is all there is
            totals = place_beside(totals, np.eye(totals.shape[2]))[state.chain.labels]
        probability = cast(totals / max(n_samples, 1), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            n_sweeps=state.chain.sweeps,
            n_samples=n_samples,
            samples=namespace(probability).concatenate(state.samples) if n_samples and self.keep_samples else None,
        )

    def _samples_at(self, sweeps: int) -> int:
        """Return how many of so many sweeps count."""
        return max(0, sweeps - self.burn_in) // self.thin


def start_labels(start: Any, problem: Problem) -> Array:
    """Return the chain's first labelling, (N, S)."""
    code, given = parse_start(start, problem, {"random": RANDOM})
    drawn = climb_once(problem, code, given, 0)  # a climb that ends where it starts
    return cast(drawn.labels()[:, :, 0], "int64")
