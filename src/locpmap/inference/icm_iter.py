"""ICM-iter, the baseline of the paper: many ICM runs, each with the unaries of random sites set to 0."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from locpmap.errors import whole_number, within
from locpmap.inference.decoder import Locality, Problem
from locpmap.inference.sampling import Tally, TallySampler, parse_start
from locpmap.kernels.perturbation import DROP, PERTURBED, RANDOM, Perturbation
from locpmap.kernels.spec import Climb
from locpmap.potentials import Potentials


@dataclass(frozen=True, eq=False)
class ICMIter(TallySampler):
    """Votes over ICM runs, each of which ignores the unaries of random sites.

    ``probability`` is the fraction of runs that end with the label.

    Args:
        n_samples (int, default 50): Number of runs per image.
        drop (float, default 0.1): Fraction of sites whose unaries are set to 0 in a run.  Forbidden labels stay
            forbidden.
        start (str or array, default "random"): Initial labels: "random" (uniform over allowed labels), "perturbed"
            (argmax of the unaries after dropping) or an array of labels.
        max_sweeps (int, default 100): Number of sweeps after which a run stops.

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.ICMIter(n_samples=100), seed=0).labels
        array([[1, 1, 1]])

    See Also:
        :class:`ICM`, :class:`LocPMAP`
    """

    name: ClassVar[str] = "icm_iter"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 50
    drop: float = 0.1
    start: Any = "random"
    max_sweeps: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("max_sweeps", self.max_sweeps, 1)
        within("drop", self.drop, 0, 1)

    def init(self, problem: Problem) -> Tally:
        start, given = parse_start(self.start, problem, {"random": RANDOM, "perturbed": PERTURBED})
        perturbation = Perturbation(DROP, float(self.drop), *problem.key)
        climb = Climb(perturbation, start, given, self.max_sweeps, problem.first_image)
        draw = partial(problem.kernels.climb, problem.view, climb)
        return Tally(draw, self.max_sweeps, problem.kernels.start_totals(problem.view, "votes", self.n_samples))

    def _noise(self, potentials: Potentials) -> None:
        return None

    def locality(self) -> Locality:
        return Locality(int(self.max_sweeps))
