"""A case: an experiment at one noise level under one seed, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.experiments.protocol import Experiment

if TYPE_CHECKING:
    from locpmap.data import LabelMaps

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Part:
    """Images and what they should have been."""

    truth: Array  # (N, H, W) whole numbers, -1 where nothing is known
    inputs: Array  # (N, ..) what models are given: here noisy images (N, H, W) float32

    def __len__(self) -> int:
        return len(self.truth)

    def first(self, n: int) -> Part:
        """The first images."""
        return Part(self.truth[:n], self.inputs[:n])


@dataclass(frozen=True, eq=False)
class Case:
    """The data of one level and seed; the seed changes the noise and all else that is drawn, never the split."""

    experiment: Experiment
    level: str
    seed: int
    sigma: float  # standard deviation of the noise
    fit: Part  # to learn from
    held_out: Part  # to stop by, or to refit on
    test: Part

    @property
    def name(self) -> str:
        """For files and for people."""
        return f"{self.level}-{self.seed}"

    def seed_of(self, purpose: str) -> int:
        """The seed for one purpose: independent of those for others, and always the same."""
        return derive_seed(self.experiment.name, self.level, self.seed, purpose)


def make_case(experiment: Experiment, maps: LabelMaps, level: str, seed: int) -> Case:
    """Corrupt the first ``n_train`` and ``n_test`` label maps."""
    for images, wanted in ((maps.train, experiment.n_train), (maps.test, experiment.n_test)):
        if len(images) < wanted:
            raise InputError(f"the data of {experiment.name} have {len(images)} images, expected at least {wanted}")
    train, test = maps.train[: experiment.n_train], maps.test[: experiment.n_test]
    corruption = experiment.corruption(level)
    sigma = float(corruption.sigma(train))

    def part(truth: Array, purpose: str) -> Part:
        return Part(truth, corruption.apply(truth, sigma, derive_seed(experiment.name, level, seed, purpose)))

    whole = part(train, "noise of the training images")
    n_fit = experiment.n_fit
    held_out = Part(whole.truth[n_fit:], whole.inputs[n_fit:])
    return Case(experiment, level, seed, sigma, whole.first(n_fit), held_out, part(test, "noise of the test images"))


def derive_seed(*words: object) -> int:
    """A number below 2^31 from words, by NumPy's SeedSequence.

    >>> derive_seed("mnist", "variance", 0, "noise") == derive_seed("mnist", "variance", 0, "noise")
    True
    """
    letters = list("/".join(map(str, words)).encode())
    return int(np.random.SeedSequence(letters).generate_state(1)[0] >> 1)
