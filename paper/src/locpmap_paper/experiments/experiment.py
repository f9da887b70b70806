"""The interface of experiments: loading data and building cases.

A case is an experiment at one level with one seed, as arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.experiments.decoders import Listed

Array = npt.NDArray[Any]

N_TUNING = 200  # held-out images for tuning


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """The settings of an experiment, except for models, decoders and seeds.

    Attributes:
        name (str): Name of the experiment.
        title (str): Title of the report.
        dataset (str): Name of a loader in `locpmap_paper.data`.
        n_train, n_test (int): Number of training and test images.
        n_ablation (int): Number of first test images used in the ablation.
        levels (tuple of str): Levels that are run by default.
        n_seeds (int): Number of seeds that are run by default.
        models (tuple of str): Names of the models.
        ablated (tuple of str): Names of the models of the ablation.
        blocks (tuple of str): Blocks of the ablation.
        decoders (dict): Names of the decoders by model; by default those of the model.
        paper (dict, optional): The paper's numbers.
        labels (tuple of str): Names of the labels.
        pictured (tuple of int): Labels whose probability is pictured.
        shipped (tuple of str): Models with bundled weights, learned at the first level with seed 0.
        shown (tuple of str, optional): Decoders that are pictured; all by default.
        n_at_once (int, optional): Number of images decoded in one call; all by default.
        fast (bool): Whether this is a smoke run.
        train (bool): Whether to train networks even if their weights are bundled.
    """

    name: str
    title: str
    dataset: str
    n_train: int
    n_test: int
    n_ablation: int
    levels: tuple[str, ...]
    n_seeds: int
    models: tuple[str, ...]
    ablated: tuple[str, ...]
    paper: dict[str, Any] | None
    labels: tuple[str, ...]
    pictured: tuple[int, ...]
    shipped: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None
    blocks: tuple[str, ...] = ("sites", "rows+columns")
    decoders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    n_at_once: int | None = None
    fast: bool = False
    train: bool = False

    @property
    @abstractmethod
    def n_held_out(self) -> int:
        """The number of training images held out for early stopping or for refitting a CRF on logits."""

    @property
    def n_fit(self) -> int:
        """The number of training images that are not held out; weights are learned from them."""
        return self.n_train - self.n_held_out

    @property
    @abstractmethod
    def known_levels(self) -> Mapping[str, str]:
        """All levels, each with a description."""

    @property
    @abstractmethod
    def setting(self) -> dict[str, Any]:
        """Further JSON values that the cases depend on."""

    @abstractmethod
    def load(self, folder: Any = None) -> Any:
        """Load the data; its ``files`` are (name, sha256, bytes) of the files that were read."""

    @abstractmethod
    def size(self, data: Any) -> tuple[int, int]:
        """Return height and width of the grids that are decoded."""

    @abstractmethod
    def case(self, data: Any, level: str, seed: int) -> Case:
        """Return the data at one level with one seed."""

    @abstractmethod
    def smoke(self) -> Experiment:
        """Return the experiment with few images, to check that everything runs."""

    def n_given(self, decoder: Listed, n_test: int) -> int:
        """Return the number of test images for a decoder."""
        return decoder.n_given(n_test)


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs with their true labels."""

    truth: Array  # (N, H, W) integers, -1 for void
    inputs: Array  # noisy images (N, H, W) float32, or indices of scenes (N,)

    def __len__(self) -> int:
        return len(self.truth)

    def first(self, n: int) -> Part:
        """Return the first n images."""
        return Part(self.truth[:n], self.inputs[:n])


@dataclass(frozen=True, eq=False)
class Case:
    """The data of one level and seed."""

    experiment: Experiment
    level: str
    seed: int
    sigma: float | None  # standard deviation of the noise; None without noise
    fit: Part  # to learn from
    held_out: Part  # for early stopping or refitting
    test: Part

    @property
    def name(self) -> str:
        """The name used in files and messages."""
        return f"{self.level}-{self.seed}"

    def seed_of(self, purpose: str) -> int:
        """Return a reproducible seed for one purpose, independent of those for other purposes."""
        return derive_seed(self.experiment.name, self.level, self.seed, purpose)

    @property
    def tuning(self) -> Part:
        """The held-out images on which a decoder's options are tuned."""
        return self.held_out.first(N_TUNING)

    def images(self, part: Part) -> Array:
        """Return the images for display, (N, H, W) or (N, H, W, 3)."""
        return part.inputs

    def outside(self, part: Part) -> Array:
        """Return the mask (N, H, W) of sites that belong to no image."""
        return np.zeros(part.truth.shape, bool)


def derive_seed(*words: object) -> int:
    """Return a number below 2^31 derived from words by NumPy's SeedSequence.

    >>> derive_seed("mnist", "variance", 0, "noise") == derive_seed("mnist", "variance", 0, "noise")
    True
    """
    letters = list("/".join(map(str, words)).encode())
    return int(np.random.SeedSequence(letters).generate_state(1)[0] >> 1)
