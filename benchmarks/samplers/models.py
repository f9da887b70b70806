"""Binary grids with exact answers: random Potts weights, from weak to strongly frustrated, and learned ones."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import locpmap as lp
from locpmap.features import ImageFeatures
from locpmap.learning import FitOptions
from locpmap_paper.experiments.denoising import CALTECH, FULL_DIGITS


@dataclass(frozen=True)
class Case:
    """A grid of ``side × side`` sites with unaries uniform in ±1 and Potts weights uniform from ``low`` to ``high``."""

    name: str
    side: int
    low: float
    high: float
    budgets: tuple[float, ...]  # seconds
    n_models: int = 1

    def potentials(self, number: int) -> lp.Potentials:
        """Return one of the models."""
        rng, n = np.random.default_rng(number), self.side
        unary = rng.uniform(-1, 1, (n, n, 2))
        return lp.Potentials.grid(
            unary, (rng.uniform(self.low, self.high, (n, n - 1)), rng.uniform(self.low, self.high, (n - 1, n)))
        )


@dataclass(frozen=True)
class Learned:
    """The central ``side × side`` pixels of noisy test images, with a CRF learned from 1,000 whole images."""

    name: str
    experiment: str
    level: str  # of noise
    objective: str
    side: int = 16
    budgets: tuple[float, ...] = (0.3, 1.0, 3.0)
    n_models: int = 3

    def potentials(self, number: int) -> lp.Potentials:
        """Return the model of one test image."""
        case = _case(self.experiment, self.level)
        crf, across, down = _learned(self.experiment, self.level, self.objective)
        images = case.test.inputs[number : number + 1]
        n, margin = self.side, (images.shape[1] - self.side) // 2
        unary = crf.potentials(images).unary.reshape(*images.shape[1:], 2)[margin:, margin:][:n, :n]
        return lp.Potentials.grid(unary, (np.full((n, n - 1), across), np.full((n - 1, n), down)))


@cache
def _case(experiment: str, level: str) -> Any:
    chosen = {one.name: one for one in (FULL_DIGITS, CALTECH)}[experiment]
    return chosen.case(chosen.load(), level, 0)


@cache
def _learned(experiment: str, level: str, objective: str) -> tuple[lp.CRF, float, float]:
    """Return a CRF with two Potts weights, and these: across and down."""
    part = _case(experiment, level).fit.first(1000)
    crf = lp.CRF(2, features=ImageFeatures(pairwise=("constant",)), potts=True)
    options = FitOptions(standard_errors=False)
    across, down = crf.fit(part.inputs, part.truth, objective, options=options, seed=0).w[-2:]
    return crf, float(across), float(down)


SHORT, LONG = (0.3, 1.0, 3.0), (1.0, 3.0, 10.0)
CASES = (
    Case("attractive, weak: 0 to 0.8", 14, 0, 0.8, SHORT),
    Case("attractive, medium: 0 to 2", 14, 0, 2, SHORT),
    Case("attractive, strong: 0 to 5", 14, 0, 5, SHORT),
    Case("frustrated, ±2", 14, -2, 2, SHORT),
    Case("frustrated, ±5", 20, -5, 5, LONG, 3),
    Case("frustrated, ±10", 20, -10, 10, LONG),
)
LEARNED = (
    Learned("digits, pseudolikelihood", "digits", "variance", "pseudolikelihood"),
    Learned("digits, consistent", "digits", "variance", "consistent"),
    Learned("silhouettes, pseudolikelihood", "caltech", "amplitude", "pseudolikelihood"),
    Learned("silhouettes, consistent", "caltech", "amplitude", "consistent"),
)
