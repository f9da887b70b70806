"""Ensembles of two networks: the mean of their logits, with and without learned couplings.

Neither network of a case was trained on test scenes: one is trained without, one with the held-out scenes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.special import softmax

from locpmap.errors import InputError
from locpmap.formats import read_model, write_model
from locpmap_paper.experiments.experiment import Array, Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.scenes.feature_cache import hash_of
from locpmap_paper.experiments.scenes.joint import FittedJoint
from locpmap_paper.experiments.scenes.store import UnaryStore
from locpmap_paper.experiments.scenes.unaries import ScaledUnaries, SceneUnaries, network_logits, unaries_of
from locpmap_paper.experiments.stages import digest
from locpmap_paper.networks.weights import to_arrays


class TwoNetworks(SceneUnaries):
    """Mean logits of two networks on test scenes, times a temperature scale learned on held-out scenes."""

    def __init__(self, base: SceneUnaries, scale: float, seconds: float) -> None:
        super().__init__(base.case, base.cache, base.stores, {"scale": scale}, seconds)
        self.scale, self._other = scale, UnaryStore(base.stores["held_out"])
        self._by_both = frozenset(base.case.names(base.case.test.inputs))

    def scores(self, name: str) -> Array:
        """Return the scores of one scene, (H, W, 8)."""
        own = super().scores(name)
        if name not in self._by_both:
            return own
        if name not in self._other:
            raise InputError(f"{self._other.folder} has no scores of scene {name}, expected scores of every test scene")
        return (own + self._other[name]) / 2

    def probability(self, inputs: Array) -> Array:
        return softmax(self.scale * self.logits(inputs), axis=-1)

    def save(self, path: Path) -> None:
        write_model(path, {}, {"scale": self.scale, "content": self.content()})


@dataclass(frozen=True, kw_only=True)
class TwoNetworksModel(Model):
    """The mean of two networks, without learning: uses the unaries and their temperature."""

    features: str = "scene"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        began, base = time.perf_counter(), unaries_of(self, store)
        fit, test = (base.case.names(part.inputs) for part in (case.fit, case.test))
        network_logits(base.case, fit, test, store, device, progress)
        return TwoNetworks(base, self._scale(store), time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        found = TwoNetworks(unaries_of(self, store), self._scale(store), 0.0)
        found.check(path, read_model(path)[1].get("content"))
        return found

    def _scale(self, store: Fits) -> float:
        scaled = store.fitted(self.needs[1])
        assert isinstance(scaled, ScaledUnaries)
        return scaled.scale


class AveragedJoint(FittedJoint):
    """The couplings of a jointly trained network on the mean of its logits and the unaries."""

    def __init__(self, joint: FittedJoint, base: SceneUnaries) -> None:
        super().__init__(joint.case, joint.coupled, {}, 0.0)
        self.joint, self.base = joint, base

    def terms(self, number: int) -> tuple[Array, list[Array]]:
        """Return logits and Potts weights of a scene."""
        logits, weights = self.joint.terms(number)
        return (logits + self.base.scores(self.case.data.scenes.names[number])) / 2, weights

    def save(self, path: Path) -> None:
        weights = {name: hash_of(array) for name, array in to_arrays(self.coupled, half=True).items()}
        write_model(path, {}, {"base": self.base.content(), "joint": digest(weights)})


@dataclass(frozen=True, kw_only=True)
class AveragedJointModel(Model):
    """The mean of a joint model's logits and the unaries, without further learning."""

    features: str = "scene"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        joint: Any = store.fitted(self.needs[1])
        return AveragedJoint(joint, unaries_of(self, store))

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return self.fit(case, store, device, lambda done, total: None)
