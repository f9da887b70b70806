"""Iterated conditional modes (ICM): greedy coordinate ascent on the score."""

from dataclasses import dataclass
from typing import Any, ClassVar

from locpmap.arrays import cast
from locpmap.errors import whole_number
from locpmap.inference.decoder import Decoder, Locality, Outcome, Problem, Step
from locpmap.inference.sampling import parse_start
from locpmap.kernels.perturbation import GIVEN, NONE, PERTURBED, RANDOM, Perturbation
from locpmap.kernels.spec import Climb, Drawn, Span

SWEEPS_PER_STEP = 10  # minimum


@dataclass
class _State:
    labels: Any  # (N, S) int16, None before the first step
    start: int
    given: Any
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class ICM(Decoder):
    """Iterated conditional modes: greedy ascent to a local maximum of the score.

    Each sweep sets every site to its best label given its neighbours.  The run ends when a sweep changes nothing.

    Args:
        start (str or array, default "random"): Initial labels: "random" (uniform over allowed labels), "unary" (argmax
            of the unaries) or an array of labels.
        max_sweeps (int, default 100): Number of sweeps after which to stop.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.ICM(start="unary")).labels
        array([[1, 1, 1]])

    See Also:
        :class:`ICMIter`, :class:`Annealing`, :class:`GraphCut`
    """

    name: ClassVar[str] = "icm"
    has_probability: ClassVar[bool] = False
    on_gpu: ClassVar[bool] = True
    start: Any = "random"
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        whole_number("max_sweeps", self.max_sweeps, 1)

    def init(self, problem: Problem) -> _State:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "unary": PERTURBED})
        return _State(None, start, given)

    def step(self, problem: Problem, state: _State) -> Step:
        sweeps = min(max(SWEEPS_PER_STEP, problem.sweeps_per_step), self.max_sweeps - state.sweeps)
        drawn = climb_once(problem, state.start, state.given, sweeps)
        state.labels, completed = drawn.labels()[:, :, 0], max(int(part.max()) for part in drawn.sweeps)
        state.sweeps += completed
        if completed == sweeps:
            state.start, state.given = GIVEN, cast(state.labels, "int64")
        return Step(state.sweeps, self.max_sweeps, converged=completed < sweeps)

    def finish(self, problem: Problem, state: _State) -> Outcome:
        return Outcome(state.labels, n_sweeps=state.sweeps)

    def locality(self) -> Locality:
        return Locality(int(self.max_sweeps))


def climb_once(problem: Problem, start: int, given: Any, max_sweeps: int) -> Drawn:
    """Climb without noise, once per image."""
    climb = Climb(Perturbation(NONE, 0.0, *problem.key), start, given, max_sweeps, problem.first_image)
    return problem.kernels.climb(problem.view, climb, Span(0, problem.potentials.n_images, 0, 1))
