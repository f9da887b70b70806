"""Simulated annealing: Gibbs sampling of p(y)^(1/t) with decreasing t, then greedy ascent."""

from dataclasses import dataclass
from typing import Any, ClassVar

from locpmap.errors import InputError, whole_number, within
from locpmap.inference.decoder import Decoder, Incumbent, Outcome, Problem, Step
from locpmap.inference.gibbs import start_labels
from locpmap.inference.icm import climb_once
from locpmap.kernels.perturbation import GIVEN
from locpmap.kernels.spec import Chain
from locpmap.result import Status

MAX_SWEEPS_PER_STEP = 8  # the labellings of a step are stored until they are scored


@dataclass
class _State:
    chain: Chain
    incumbent: Incumbent


@dataclass(frozen=True, eq=False)
class Annealing(Decoder):
    """Simulated annealing: the best labelling of a cooling Gibbs chain, improved by greedy ascent.

    The temperature decreases by the same factor after every sweep of the chain.

    Args:
        n_sweeps (int, default 100): Number of sweeps of the chain.
        start_temperature (float, default 3.0): Temperature of the first sweep.
        end_temperature (float, default 0.02): Temperature of the last sweep.
        start (str or array, default "random"): "random" (uniform over allowed labels) or an array of labels.
        max_sweeps (int, default 100): Number of sweeps after which the final ascent stops.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.Annealing(n_sweeps=20), seed=0).labels
        array([[1, 1, 1]])

    See Also:
        :class:`Gibbs`, :class:`ICM`, :class:`GraphCut`
    """

    name: ClassVar[str] = "annealing"
    unbounded: ClassVar[str] = "every sweep continues from the last one, so that dependence spreads without bound"
    has_probability: ClassVar[bool] = False
    on_gpu: ClassVar[bool] = True
    at_end: ClassVar[Status] = Status.COMPLETE
    n_sweeps: int = 100
    start_temperature: float = 3.0
    end_temperature: float = 0.02
    start: Any = "random"
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        whole_number("n_sweeps", self.n_sweeps, 1)
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("start_temperature", self.start_temperature, 0, open_low=True)
        within("end_temperature", self.end_temperature, 0, open_low=True)
        if self.end_temperature > self.start_temperature:
            raise InputError(
                f"end_temperature is {self.end_temperature},"
                f" expected at most start_temperature = {self.start_temperature}"
            )

    def init(self, problem: Problem) -> _State:
        labels = start_labels(self.start, problem)
        cooling = (self.end_temperature / self.start_temperature) ** (1 / max(self.n_sweeps - 1, 1))
        temperature = {"start_temperature": self.start_temperature, "cooling": cooling}
        return _State(Chain(labels, problem.key, problem.first_image, **temperature), Incumbent.start(problem))

    def step(self, problem: Problem, state: _State) -> Step:
        n_sweeps = min(problem.sweeps_per_step, MAX_SWEEPS_PER_STEP, self.n_sweeps - state.chain.sweeps)
        for labels in problem.kernels.gibbs(problem.view, state.chain, n_sweeps, keep=True):
            state.incumbent.update(problem, labels)
        return Step(state.chain.sweeps, self.n_sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        drawn = climb_once(problem, GIVEN, state.incumbent.labels, self.max_sweeps)
        return Outcome(drawn.labels()[:, :, 0], n_sweeps=state.chain.sweeps)
