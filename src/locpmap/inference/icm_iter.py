"""ICM-iter, the paper's control: many ICM runs, each with the unaries of a random tenth of the sites zeroed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from locpmap.errors import whole_number, within
from locpmap.inference.decoder import Locality, Problem
from locpmap.inference.sampling import Tally, TallySampler, check_start_of_tiles, parse_start
from locpmap.kernels.perturbation import DROP, PERTURBED, RANDOM, Perturbation
from locpmap.kernels.spec import Climb
from locpmap.potentials import Potentials


@dataclass(frozen=True, eq=False)
class ICMIter(TallySampler):
    """Votes over ICM runs that each ignore some of the data.

    Args:
        n_samples: Number of runs.
        drop: Share of the sites whose unaries a run sets to 0 (forbidden labels stay forbidden).
        start: "random", "perturbed" (the argmax of what is left of the unaries) or an array of labels.
        max_sweeps: Sweeps after which a run stops.
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
        return Tally.start(problem, draw, self.max_sweeps, self.n_samples)

    def _noise(self, potentials: Potentials) -> None:
        return None

    def locality(self) -> Locality:
        check_start_of_tiles(self.start)
        return Locality(int(self.max_sweeps))
