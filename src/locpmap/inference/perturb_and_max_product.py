"""Perturb-and-max-product: Gumbel noise on the unaries, then max-product in place of the global maximum; repeat, count.

As Perturb-and-MAP with low-order noise, but for models whose maximum cannot be found (Lazaro-Gredilla et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from locpmap.errors import within
from locpmap.inference.decoder import Problem
from locpmap.inference.message_options import check_options
from locpmap.inference.sampling import Tally, TallySampler
from locpmap.kernels.perturbation import PLAIN, Perturbation


@dataclass(frozen=True, eq=False)
class PerturbAndMaxProduct(TallySampler):
    """Votes over max-product labellings of perturbed models.

    Args:
        n_samples: Number of samples.
        temperature: Scale of the noise.
        damping: Share of the old message in the new from the tenth sweep on, 0 to 0.99.
        max_sweeps: Sweeps after which a sample takes the labelling of the messages as they are.
        tolerance: A sample has converged when no message moves by more than this.
        schedule: As in :class:`LBP`.
        keep_samples: Return the samples themselves, (M, ..).
    """

    name: ClassVar[str] = "perturb_and_max_product"
    unbounded: ClassVar[str] = "its messages stop when those of the whole raster have converged"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 50
    temperature: float = 1.0
    damping: float = 0.3
    max_sweeps: int = 50
    tolerance: float = 1e-3
    schedule: str = "auto"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        within("temperature", self.temperature, 0)
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> Tally:
        perturbation = Perturbation(PLAIN, float(self.temperature), *problem.key)
        plan = problem.kernels.plan_messages(problem.view, self.schedule, self.damping, self.tolerance)
        max_sweeps = 1 if plan.exact else self.max_sweeps
        how = (problem.view, plan, perturbation, max_sweeps, problem.first_image)
        draw = partial(problem.kernels.perturb_and_max_product, *how)
        # A sample that takes as many sweeps as the tally is told counts as cut short; an exact one never is.
        return Tally.start(problem, draw, max_sweeps + plan.exact, self.n_samples)
