"""Unaries that heard what is said of places that look alike, as `locpmap.refine` does it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.data.scenes import VOID
from locpmap.experiments.experiment import Array, Case
from locpmap.experiments.model import Fits, Fitted, Model, Progress
from locpmap.experiments.scenes.pairwise import N_FIT, N_STOP
from locpmap.experiments.scenes.unaries import SceneUnaries, unaries_of
from locpmap.formats.model_file import read_model, write_model
from locpmap.refining.examples import gather
from locpmap.refining.fitting import fit_scale, fit_surroundings
from locpmap.refining.guiding import RADII
from locpmap.refining.model import pooled
from locpmap.refining.reading import read


class PooledUnaries(SceneUnaries):
    """``own · scale · scores + guided · g``, g being the logarithm of the mean softmax of places that look alike."""

    def __init__(self, base: SceneUnaries, scale: float, own: float, guided: float, seconds: float) -> None:
        details = {"scale": scale, "own": own, "guided": guided}
        super().__init__(base.case, base.cache, base.stores, details, seconds)
        self.weights = scale, own, guided

    def scores(self, name: str) -> Array:
        """Of one scene, (H, W, 8)."""
        scale, own, guided = self.weights
        scenes = self.case.data.scenes
        given = read(scenes[scenes.names.index(name)][1], super().scores(name), "hwk", "logits")
        found: Array = pooled(given.scores * np.float32(scale), given.image, own, guided)[0]
        return found

    def save(self, path: Path) -> None:
        write_model(path, {"weights": np.array(self.weights)}, {})


@dataclass(frozen=True, kw_only=True)
class PooledModel(Model):
    """Three numbers by maximum likelihood on held-out scenes."""

    features: str = "scene"

    def constants(self, case: Case) -> dict[str, Any]:
        """How much it learns from, and where it looks."""
        return {"scenes": N_FIT + N_STOP, "radii": list(RADII)}

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        base, began = unaries_of(self, store), time.perf_counter()
        scenes, numbers = base.case.data.scenes, case.held_out.inputs[: N_FIT + N_STOP]  # others are for tuning
        logits = [base.scores(name) for name in base.case.names(numbers)]
        images, labels = [scenes[n][1] for n in numbers], [scenes.labels[n].astype(np.int64) for n in numbers]
        examples = gather(images, logits, labels, VOID, "hwk", "logits", None)
        seed = case.seed_of(f"training of {self.name}")
        scale = fit_scale(examples, seed)
        return PooledUnaries(base, scale, *fit_surroundings(examples, scale, seed), time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        scale, own, guided = (float(number) for number in read_model(path)[0]["weights"])
        return PooledUnaries(unaries_of(self, store), scale, own, guided, 0.0)
