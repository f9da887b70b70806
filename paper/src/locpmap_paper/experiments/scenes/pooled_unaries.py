"""Unaries combined with the mean prediction at nearby pixels of similar colour, as `locpmap.refine` computes it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locpmap.formats import read_model, write_model
from locpmap.refining import RADII
from locpmap_paper.experiments.experiment import Array, Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.scenes.pairwise import N_FIT, N_STOP
from locpmap_paper.experiments.scenes.similar_pixels import around, fit_scale, fit_similar
from locpmap_paper.experiments.scenes.unaries import SceneUnaries, unaries_of


class PooledUnaries(SceneUnaries):
    """``own · scale · scores + guided · g``, where g is the log of the mean softmax at similar pixels nearby."""

    def __init__(self, base: SceneUnaries, scale: float, own: float, guided: float, seconds: float) -> None:
        details = {"scale": scale, "own": own, "guided": guided}
        super().__init__(base.case, base.cache, base.stores, details, seconds)
        self.weights = scale, own, guided

    def scores(self, name: str) -> Array:
        """Return the scores of one scene, (H, W, 8)."""
        scale, own, guided = self.weights
        scenes = self.case.data.scenes
        scaled = super().scores(name).astype(np.float32) * np.float32(scale)
        if guided == 0:
            return scaled
        similar = around(scaled, scenes[scenes.names.index(name)][1])
        return np.float32(own) * scaled + np.float32(guided) * similar

    def save(self, path: Path) -> None:
        write_model(path, {"weights": np.array(self.weights)}, {})


@dataclass(frozen=True, kw_only=True)
class PooledModel(Model):
    """A model of scale, own and guided weight, as in `locpmap.Refiner`, learned on held-out scenes."""

    features: str = "scene"

    def constants(self, case: Case) -> dict[str, Any]:
        """Return the number of scenes and the radii of the neighbourhood."""
        return {"scenes": N_FIT + N_STOP, "radii": list(RADII)}

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        base, began = unaries_of(self, store), time.perf_counter()
        scenes, numbers = base.case.data.scenes, case.held_out.inputs[: N_FIT + N_STOP]  # the rest is for tuning
        logits = [base.scores(name) for name in base.case.names(numbers)]
        images, labels = [scenes[n][1] for n in numbers], [scenes.labels[n].astype(np.int64) for n in numbers]
        seed = case.seed_of(f"training of {self.name}")
        scale = fit_scale(logits, labels, seed)
        own, guided = fit_similar([np.float32(scale) * one.astype(np.float32) for one in logits], images, labels, seed)
        return PooledUnaries(base, scale, own, guided, time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        scale, own, guided = (float(number) for number in read_model(path)[0]["weights"])
        return PooledUnaries(unaries_of(self, store), scale, own, guided, 0.0)
