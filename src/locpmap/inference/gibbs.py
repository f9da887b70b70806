"""Gibbs sampling: a Markov chain of single-site draws that converges to the model's distribution."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Array, cast, namespace, place_like
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
    """Gibbs sampling: estimates of the marginals from one Markov chain per image.

    Args:
        n_samples (int, default 100): Number of samples per image.
        burn_in (int, default 100): Number of sweeps to discard before the first sample.
        thin (int, default 1): Number of sweeps per sample.
        start (str or array, default "random"): "random" (uniform over allowed labels) or an array of labels.
        probability (str, default "votes"): Estimator of probabilities.  "votes" is the fraction of samples with the
            label.  "conditional" is the mean of the probabilities from which labels were drawn.  It has less variance,
            and allowed labels never get 0 except by underflow.
        keep_samples (bool, default False): Return the samples in ``result.samples``, (M, ...).

    Notes:
        If ``max_seconds`` ends the run during the burn-in, the result is the current state of the chain.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> result = lp.infer(pot, lp.Gibbs(n_samples=500), seed=0)
        >>> exact = lp.infer(pot, "exact")
        >>> bool(np.abs(result.probability - exact.probability).max() < 0.1)
        True

    See Also:
        :class:`LBP`, :class:`Exact`, :class:`Annealing`
    """

    name: ClassVar[str] = "gibbs"
    unbounded: ClassVar[str] = "every sweep continues from the last one, so that dependence spreads without bound"
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
        """Perform sweeps, up to sweep ``upto`` at most; return their samples (R, N, S) if ``keep``."""
        n_sweeps = min(problem.sweeps_per_step, upto - state.chain.sweeps)
        state.chain.adds = (VOTES if self.probability == "votes" else CONDITIONAL) if counted else NOTHING
        return problem.kernels.gibbs(problem.view, state.chain, n_sweeps, keep=keep)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        n_samples, totals = self._samples_at(state.chain.sweeps), state.chain.totals
        assert totals is not None
        if n_samples == 0:  # stopped during burn-in: return the current state
            totals = place_like(totals, np.eye(totals.shape[2]))[state.chain.labels]
        probability = cast(totals / max(n_samples, 1), problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            n_sweeps=state.chain.sweeps,
            n_samples=n_samples,
            samples=namespace(probability).concatenate(state.samples) if n_samples and self.keep_samples else None,
        )

    def _samples_at(self, sweeps: int) -> int:
        """Return the number of samples among the given number of sweeps."""
        return max(0, sweeps - self.burn_in) // self.thin


def start_labels(start: Any, problem: Problem) -> Array:
    """Return the first labelling of the chain, (N, S)."""
    code, given = parse_start(start, problem, {"random": RANDOM})
    drawn = climb_once(problem, code, given, 0)  # a climb of 0 sweeps returns its start
    return cast(drawn.labels()[:, :, 0], "int64")
