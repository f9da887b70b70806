"""What an experiment is to the runner: where its data come from, and the cases that they become.

A case is an experiment at one level under one seed, as arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.experiments.decoders import Listed

Array = npt.NDArray[Any]

N_TUNING = 200


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """Everything that decides the numbers, but for the models, the decoders and the seeds."""

    name: str
    title: str
    dataset: str  # a function of locpmap_paper.data
    n_train: int
    n_test: int
    n_ablation: int  # test images, from the first, on which the ablation is done
    levels: tuple[str, ...]  # unless told otherwise
    n_seeds: int  # likewise
    models: tuple[str, ...]
    ablated: tuple[str, ...]  # models of the ablation
    paper: dict[str, Any] | None
    labels: tuple[str, ...]
    pictured: tuple[int, ...]  # labels whose probability the pictures show
    shipped: tuple[str, ...] = ()  # models whose weights come with the package, learned at the first level, seed 0
    shown: tuple[str, ...] | None = None  # decoders of the pictures; all of them by default
    n_at_once: int | None = None  # images that are decoded together; all of them by default
    fast: bool = False
    train: bool = False  # networks whose weights come with the package, too

    @property
    @abstractmethod
    def n_held_out(self) -> int:
        """Training images that no weights are learned from: they stop fits, or refit a CRF on a network's logits."""

    @property
    def n_fit(self) -> int:
        """Training images that weights are learned from."""
        return self.n_train - self.n_held_out

    @property
    @abstractmethod
    def known_levels(self) -> Mapping[str, str]:
        """The levels that can be asked for, and what each is."""

    @property
    @abstractmethod
    def setting(self) -> dict[str, Any]:
        """What else decides the cases, in what JSON can hold."""

    @abstractmethod
    def load(self, folder: Any = None) -> Any:
        """The data, whose ``files`` are (name, sha256, bytes) of what was read."""

    @abstractmethod
    def size(self, data: Any) -> tuple[int, int]:
        """Height and width of the grids that are decoded."""

    @abstractmethod
    def case(self, data: Any, level: str, seed: int) -> Case:
        """The data at one level under one seed."""

    @abstractmethod
    def smoke(self) -> Experiment:
        """The same with so few images that it only shows that everything runs."""

    def n_given(self, decoder: Listed, n_test: int) -> int:
        """How many of the test images a decoder is given."""
        return decoder.n_given(n_test)


@dataclass(frozen=True, eq=False)
class Part:
    """Images and what they should have been."""

    truth: Array  # (N, H, W) whole numbers, -1 where nothing is known
    inputs: Array  # (N, ..) what models are given: noisy images (N, H, W) float32, or the numbers of scenes (N,)

    def __len__(self) -> int:
        return len(self.truth)

    def first(self, n: int) -> Part:
        """The first images."""
        return Part(self.truth[:n], self.inputs[:n])


@dataclass(frozen=True, eq=False)
class Case:
    """The data of one level and seed."""

    experiment: Experiment
    level: str
    seed: int
    sigma: float | None  # standard deviation of the noise, where there is any
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

    @property
    def tuning(self) -> Part:
        """Held-out images by which a decoder's options are chosen."""
        return self.held_out.first(N_TUNING)

    def images(self, part: Part) -> Array:
        """What a person would look at, (N, H, W) or (N, H, W, 3)."""
        return part.inputs

    def outside(self, part: Part) -> Array:
        """Which sites (N, H, W) of the arrays belong to no image."""
        return np.zeros(part.truth.shape, bool)


def derive_seed(*words: object) -> int:
    """A number below 2^31 from words, by NumPy's SeedSequence.

    >>> derive_seed("mnist", "variance", 0, "noise") == derive_seed("mnist", "variance", 0, "noise")
    True
    """
    letters = list("/".join(map(str, words)).encode())
    return int(np.random.SeedSequence(letters).generate_state(1)[0] >> 1)
