"""Perturb-and-max-product: add Gumbel noise to the unaries, decode by max-product, repeat.

Perturb-and-MAP needs the exact maximum, which is intractable for most models.  Here max-product approximates it
(Lazaro-Gredilla et al. 2021).
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from locpmap.errors import within
from locpmap.inference.decoder import Problem
from locpmap.inference.message_passing import MessagePassing
from locpmap.inference.sampling import Tally, TallySampler
from locpmap.kernels.perturbation import PLAIN, Perturbation


@dataclass(frozen=True, eq=False)
class PerturbAndMaxProduct(MessagePassing, TallySampler):
    """Perturb-and-max-product: votes over max-product labellings of randomly perturbed scores.

    ``probability`` is the fraction of samples with the label.

    Args:
        n_samples (int, default 50): Number of samples to draw per image.
        temperature (float, default 1.0): Scale of the noise.
        damping (float, default 0.3): Weight of the old message, as in :class:`LBP`.
        max_sweeps (int, default 50): Number of sweeps after which a sample is decoded from the current messages.
        tolerance (float, default 1e-3): A sample has converged when no message changes by more than this.
        schedule (str, default "auto"): Order of the messages, as in :class:`LBP`.
        keep_samples (bool, default False): Return the samples in ``result.samples``, (M, ...).

    Example:
        >>> pot = lp.Potentials.grid(np.array([[[0.0, 2.0], [0.5, 0.0], [0.0, 2.0]]]), 1.0)
        >>> lp.infer(pot, lp.PerturbAndMaxProduct(n_samples=100), seed=0).labels
        array([[1, 1, 1]])

    See Also:
        :class:`PerturbAndMAP`, :class:`LocPMAP`, :class:`MaxProduct`
    """

    name: ClassVar[str] = "perturb_and_max_product"
    n_samples: int = 50
    temperature: float = 1.0
    damping: float = 0.3
    max_sweeps: int = 50
    tolerance: float = 1e-3
    schedule: str = "auto"
    keep_samples: bool = False

    def __post_init__(self) -> None:
        MessagePassing.__post_init__(self)
        TallySampler.__post_init__(self)
        within("temperature", self.temperature, 0)

    def init(self, problem: Problem) -> Tally:
        perturbation = Perturbation(PLAIN, float(self.temperature), *problem.key)
        plan = self.plan(problem)
        max_sweeps = 1 if plan.exact else self.max_sweeps
        how = (problem.view, plan, perturbation, max_sweeps, problem.first_image)
        draw = partial(problem.kernels.perturb_and_max_product, *how)
        # A sample with as many sweeps as the tally's max_sweeps counts as cut short; an exact one must not.
        return Tally(draw, max_sweeps + plan.exact, problem.kernels.start_totals(problem.view, "votes", self.n_samples))
