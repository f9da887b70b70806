"""Settings of the sliders, and what a decoder makes of a scene with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, unknown, whole_number
from locpmap.inference import LocPMAP, infer
from locpmap.inference.samples import drawing
from locpmap.kernels.model import QUANTUM
from locpmap.kernels.threads import available_threads
from locpmap.measuring import Measurement
from locpmap.potentials import Potentials
from locpmap.refining.scoring import softmax
from locpmap.result import Result, entropy_of
from locpmap.viewer.scenes import Scene

Progress = Callable[[int, int], None]

# What is compared, and what the page calls it.
METHODS = {
    "network": "Network alone",
    "locpmap": "LocPMAP",
    "icm": "ICM",
    "mean_field": "Mean field",
    "lbp": "Loopy BP",
    "trw": "Tree-reweighted BP",
    "graph_cut": "Graph cut",
    "gibbs": "Gibbs sampling",
}
# What a method looks at, where that is not smoothing and temperature alone.
USED: dict[str, tuple[str, ...]] = {
    "network": (),
    "locpmap": ("smoothing", "temperature", "n_samples", "blocks", "seed"),
    "gibbs": ("smoothing", "temperature", "seed"),
}
BLOCKS = ("sites", "rows+columns")
SMOOTHINGS, TEMPERATURES, SAMPLES = (0.0, 4.0), (0.1, 3.0), (1, 400)  # from, to
RIVAL_SECONDS = 60.0  # after which another decoder's answer is taken as it is
KEPT_BYTES = 64 << 20  # of single samples, for looking at: all of them on most images


@dataclass(frozen=True)
class Settings:
    """What a user can set: one of ``METHODS``, and options of `locpmap.Refiner.adjusted` and of LocPMAP."""

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
        """The same, with what the method does not look at as it is by default: what one result is known by."""
        used = USED.get(self.method, ("smoothing", "temperature"))
        return Settings(self.method, **{name: getattr(self, name) for name in used})


@dataclass(frozen=True, eq=False)
class Decoding:
    """A decoder's answer for one scene."""

    scene: Scene
    settings: Settings
    labels: Array  # (H, W) uint8
    probability: Array | None  # (H, W, K) float32
    status: str
    seconds: float
    score: float | None = None
    samples: Array | None = None  # (m, H, W) uint8, the first of them
    areas: Measurement | None = None

    @property
    def nbytes(self) -> int:
        """What it takes of the memory."""
        return sum(array.nbytes for array in (self.labels, self.probability, self.samples) if array is not None)

    def chance(self, label: int | None) -> Array:
        """The probability (H, W) of a label, or of each pixel's own for None."""
        assert self.probability is not None
        if label is not None:
            return self.probability[..., label]
        return np.take_along_axis(self.probability, self.labels[..., None].astype(np.int64), axis=2)[..., 0]

    def entropy(self) -> Array:
        """In nats, (H, W)."""
        assert self.probability is not None
        return np.asarray(entropy_of(self.probability))


def decode(scene: Scene, settings: Settings, progress: Progress | None = None) -> Decoding:
    """Run the decoder; ``progress`` may raise to stop it."""
    settings = settings.relevant
    if settings.method == "network":
        probability = softmax(scene.logits)
        labels = probability.argmax(axis=2).astype(np.uint8)
        return Decoding(scene, settings, labels, probability, "as the network says", 0.0)
    prepared = scene.prepared(settings.smoothing, settings.temperature)
    if settings.method != "locpmap":
        how: dict[str, Any] = {"seed": settings.seed, "max_seconds": RIVAL_SECONDS, "progress": progress}
        result = infer(prepared.potentials, settings.method, **how)
        return _decoding(scene, settings, result)
    decoder = LocPMAP(settings.n_samples, blocks=settings.blocks, start="perturbed")
    result, maps = _watched(prepared.potentials, decoder, settings.seed, progress)
    # In samples of their own, which share an error.
    areas = prepared.measure("area", decoder, seed=settings.seed, names=scene.names)
    return replace(_decoding(scene, settings, result), samples=maps, areas=areas)


def _watched(potentials: Potentials, decoder: LocPMAP, seed: int, progress: Progress | None) -> tuple[Result, Array]:
    """Return the result and the first sampled maps (m, H, W); draw in short rounds, so that it can be stopped."""
    maps: list[Array] = []
    done, drawn = 0, drawing(potentials, decoder, QUANTUM * available_threads(), seed)
    while True:
        try:
            part = next(drawn)
        except StopIteration as end:
            return end.value, np.stack(maps)
        room = max(1, KEPT_BYTES // part[0].size) - len(maps)
        maps += list(part[: max(room, 0)].astype(np.uint8))
        done += len(part)
        if progress is not None:
            progress(done, decoder.n_samples)


def _decoding(scene: Scene, settings: Settings, result: Result) -> Decoding:
    probability = None if result.probability is None else result.probability.astype(np.float32, copy=False)
    labels = result.labels.astype(np.uint8)
    return Decoding(scene, settings, labels, probability, str(result.status), result.seconds, score=float(result.score))
