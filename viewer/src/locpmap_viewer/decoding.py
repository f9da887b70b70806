"""Decoding of a scene with the settings of the sliders."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from locpmap import LocPMAP, Measurement, Result, infer
from locpmap.errors import InputError, unknown, whole_number
from locpmap.guarantees import Guarantee
from locpmap.refining import draw
from locpmap_viewer.scenes import Scene, adjusted, prepared

Progress = Callable[[int, int], None]

# Methods of the page and their titles.
METHODS = {
    "network": "Network",
    "locpmap": "LocPMAP",
    "icm": "ICM",
    "mean_field": "Mean field",
    "lbp": "Loopy BP",
    "trw": "Tree-reweighted BP",
    "graph_cut": "Graph cut",
    "gibbs": "Gibbs sampling",
}
# Settings that a method uses.  Temperature changes probabilities but no maximum.
USED: dict[str, tuple[str, ...]] = {
    "network": (),
    "locpmap": ("smoothing", "temperature", "n_samples", "blocks", "seed"),
    "icm": ("smoothing",),
    "mean_field": ("smoothing", "temperature"),
    "lbp": ("smoothing", "temperature"),
    "trw": ("smoothing", "temperature"),
    "graph_cut": ("smoothing",),
    "gibbs": ("smoothing", "temperature", "seed"),
}
BLOCKS = ("sites", "rows+columns")
SMOOTHINGS, TEMPERATURES, SAMPLES = (0.0, 4.0), (0.1, 3.0), (1, 400)  # (least, greatest)
MAX_SECONDS = 60.0  # time limit of decoders other than LocPMAP
SAMPLE_BYTES = 64 << 20  # memory for single samples; enough for all of them on most images


@dataclass(frozen=True)
class Settings:
    """Settings of the user: one of ``METHODS``, and options of `locpmap.Refiner.adjusted` and LocPMAP."""

    method: str = "locpmap"
    smoothing: float = 0.0
    temperature: float = 1.0
    n_samples: int = 50
    blocks: str = "sites"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if self.blocks not in BLOCKS:
            raise unknown("blocks", self.blocks, BLOCKS)
        for name, (least, most) in (("smoothing", SMOOTHINGS), ("temperature", TEMPERATURES)):
            if not least <= getattr(self, name) <= most:
                raise InputError(f"{name} is {getattr(self, name)}, expected a number from {least:g} to {most:g}")
        whole_number("n_samples", self.n_samples, *SAMPLES)
        whole_number("seed", self.seed, 0, 2**32 - 1)

    @property
    def relevant(self) -> Settings:
        """Settings with the options that the method ignores set to defaults; equal settings give equal results."""
        return Settings(self.method, **{name: getattr(self, name) for name in USED[self.method]})


@dataclass(frozen=True, eq=False)
class Decoding:
    """Result of a decoder for one scene."""

    scene: Scene
    settings: Settings
    labels: np.ndarray  # (H, W) uint8
    probability: np.ndarray | None  # (H, W, K) float32
    status: str
    seconds: float = 0.0  # from the request to the result, the model included
    samples: np.ndarray | None = None  # (m, H, W) uint8, the first m samples
    areas: Measurement | None = None
    guarantee: Guarantee | None = None  # of the refiner
    coupled: bool = True  # whether the model has weights between neighbours

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (self.labels, self.probability, self.samples) if array is not None)

    def label_probability(self, label: int | None) -> np.ndarray:
        """Return the probability (H, W) of a label; None selects the decoded label of each pixel."""
        assert self.probability is not None
        if label is not None:
            return self.probability[..., label]
        return np.take_along_axis(self.probability, self.labels[..., None].astype(np.int64), axis=2)[..., 0]

    def entropy(self) -> np.ndarray:
        """Return the entropy (H, W) in nats."""
        assert self.probability is not None
        return np.asarray(special.entr(self.probability).sum(axis=2))


def decode(scene: Scene, settings: Settings, progress: Progress | None = None) -> Decoding:
    """Decode a scene; ``progress(done, total)`` may raise to stop the decoder."""
    began = time.perf_counter()
    found = _decoded(scene, settings.relevant, progress)
    return replace(found, seconds=time.perf_counter() - began)


def _decoded(scene: Scene, settings: Settings, progress: Progress | None) -> Decoding:
    if settings.method == "network":
        probability = special.softmax(scene.logits, axis=2)
        return Decoding(scene, settings, scene.network_labels, probability, "softmax of the logits")
    model = prepared(scene, settings.smoothing, settings.temperature)
    if settings.method != "locpmap":
        how: dict[str, Any] = {"seed": settings.seed, "max_seconds": MAX_SECONDS, "progress": progress}
        return _decoding(scene, settings, infer(model.potentials, settings.method, **how))
    decoder = LocPMAP(settings.n_samples, blocks=settings.blocks, start="perturbed")
    max_maps = max(1, SAMPLE_BYTES // scene.logits[..., 0].size)
    drawn = draw(model, decoder, max_maps, seed=settings.seed, progress=progress)
    return replace(
        _decoding(scene, settings, drawn.result),
        samples=drawn.maps.astype(np.uint8),
        areas=drawn.areas,
        guarantee=adjusted(scene, settings.smoothing, settings.temperature).guarantee,
        coupled=model.potentials.pairwise.coupled,
    )


def _decoding(scene: Scene, settings: Settings, result: Result) -> Decoding:
    probability = None if result.probability is None else result.probability.astype(np.float32, copy=False)
    labels = result.labels.astype(np.uint8)
    return Decoding(scene, settings, labels, probability, str(result.status))
