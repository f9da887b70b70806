"""Grid models and decoder options for comparing backends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tests.oracles.models import random_unary
from tests.support.noise import PlainNoise

from locpmap.inference.locpmap import LocPMAP
from locpmap.potentials import Potentials

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 2), (5, 7)]
FORMS = ["weight", "negative weight", "weights", "either sign", "table", "hard tables"]


class Case(NamedTuple):
    """Options of a run other than shape, number of labels and pairwise form."""

    batch: bool = False
    window: bool = False
    forbidden: bool = False
    start: str = "random"  # or "perturbed", or "given": the argmax of the unaries
    temperature: float = 1.0
    plain: bool = False  # plain noise, even if the model allows lazy noise
    probability: str = "conditional"
    max_sweeps: int = 100
    seed: int = 0

    def decoder(self, pot: Potentials, n_samples: int, **more: Any) -> LocPMAP:
        """Return the decoder of the case."""
        start: Any = pot.unflatten(pot.unary.argmax(axis=2)) if self.start == "given" else self.start
        how: dict[str, Any] = {
            "temperature": self.temperature,
            "probability": self.probability,
            "max_sweeps": self.max_sweeps,
        }
        return (PlainNoise if self.plain else LocPMAP)(n_samples, start=start, **how, **more)


# Every value of every field, and every combination of start, probability and noise scheme.
CASES = {
    "defaults": Case(),
    "votes of a batch": Case(batch=True, probability="votes", seed=1),
    "a window, perturbed": Case(window=True, start="perturbed", seed=2),
    "forbidden labels, perturbed votes, cold": Case(
        forbidden=True, start="perturbed", temperature=0.3, probability="votes", seed=3
    ),
    "a batch of windows from given labels, hot": Case(batch=True, window=True, start="given", temperature=2.5, seed=4),
    "votes from given labels, cut": Case(start="given", probability="votes", max_sweeps=2, seed=5),
    "plain noise of a batch": Case(batch=True, plain=True, temperature=0.3, seed=6),
    "plain votes of a window, perturbed": Case(window=True, start="perturbed", plain=True, probability="votes", seed=7),
    "plain noise, forbidden labels, perturbed, cut": Case(
        forbidden=True, start="perturbed", plain=True, max_sweeps=2, seed=8
    ),
    "plain votes, hot": Case(plain=True, temperature=2.5, probability="votes", seed=9),
    "plain votes from given labels": Case(forbidden=True, start="given", plain=True, probability="votes", seed=10),
    "plain noise from given labels, a batch of windows": Case(
        batch=True, window=True, start="given", plain=True, seed=11
    ),
}


def model_of(case: Case, shape: tuple[int, int], n_labels: int, form: str) -> Potentials:
    """Return a grid of the given shape with the options of the case."""
    rng = np.random.default_rng(case.seed)
    images: tuple[int, ...] = (3,) if case.batch else ()
    height, width = shape
    unary = random_unary((*images, *shape), n_labels, 0.2 if case.forbidden else 0.0, rng)
    right, down = rng.normal(size=(*images, height, width - 1)), rng.normal(size=(height - 1, width))
    tables = [rng.normal(size=(*w.shape, n_labels, n_labels)) for w in (right, down)]
    pairwise: Any = {
        "weight": 0.9,
        "negative weight": -0.4,
        "weights": (np.abs(right), np.abs(down)),
        "either sign": (right, down),
        "table": rng.normal(size=(n_labels, n_labels)),
        "hard tables": [np.where(rng.random(t.shape) < 0.1, -np.inf, t) for t in tables],
    }[form]
    return Potentials.grid(unary, pairwise, window=(3, 2, 11) if case.window else None)


def odd_model(shape: tuple[int, int], n_labels: int, form: str, seed: int) -> Potentials:
    """Return a grid by seed: multiples of 3 are batches, odd seeds windows, multiples of 4 have forbidden labels."""
    return model_of(Case(seed % 3 == 0, seed % 2 == 1, seed % 4 == 0, seed=seed), shape, n_labels, form)
