"""Perturb-and-max-product: Gumbel noise on the unaries, then max-product in place of the global maximum; repeat, count.

As Perturb-and-MAP with low-order noise, but for models whose maximum cannot be found (Lazaro-Gredilla et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from locpmap.inference.decoder import Problem, at_least, within
from locpmap.inference.passing import UNDAMPED_SWEEPS, Array, check_options, layout, make_plan, parents_first
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
        schedule: As in :class:`MaxProduct`.
        keep_samples: Return the samples themselves, (M, ..).
    """

    name: ClassVar[str] = "perturb_and_max_product"
    on_gpu: ClassVar[bool] = True
    n_samples: int = 50
    temperature: float = 1.0
    damping: float = 0.3
    max_sweeps: int = 50
    tolerance: float = 1e-3
    schedule: str = "auto"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        at_least("n_samples", self.n_samples, 1)
        within("temperature", self.temperature, 0)
        check_options(self.damping, self.max_sweeps, self.tolerance, self.schedule)

    def init(self, problem: Problem) -> Tally:
        perturbation = Perturbation(PLAIN, float(self.temperature), *problem.key)
        plan = make_plan(problem, self.schedule, self.damping, self.tolerance)
        how = (perturbation, plan.order, parents_first(problem))
        max_sweeps = 1 if plan.exact else self.max_sweeps
        known = layout(problem, plan) if problem.kernels.device else {}
        limits = (plan.damping, UNDAMPED_SWEEPS, plan.tolerance, max_sweeps)

        def draw(lo: int, hi: int, first: int, count: int) -> tuple[Array, Array]:
            labels = problem.empty((hi - lo, problem.potentials.n_sites, count), "int16")
            part = (problem.first_image, lo, hi, first, labels)
            return labels, problem.kernels.perturb_and_max_product(problem.model, *how, *limits, *part, **known)

        # A sample that takes as many sweeps as the tally is told counts as cut short; an exact one never is.
        return Tally.start(problem, draw, max_sweeps + plan.exact, self.n_samples)
