"""The unaries as models of the runner: a classifier or network alone, and with temperature scaling."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from locpmap.errors import InputError
from locpmap.formats import read_model, write_model
from locpmap_paper.data.scenes import VOID
from locpmap_paper.experiments.experiment import Array, Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.progress import Silent
from locpmap_paper.experiments.scenes.experiment import SceneCase
from locpmap_paper.experiments.scenes.feature_cache import hash_of
from locpmap_paper.experiments.scenes.split import Split
from locpmap_paper.experiments.scenes.store import UnaryStore
from locpmap_paper.experiments.stages import digest

FILE_KIND = "scene unaries"
EVERY = 7  # stride of the columns used for choosing the temperature
BOUNDS = (0.2, 5.0)


class SceneUnaries(Fitted):
    """Scores of held-out and test scenes, by models that were not trained on them."""

    def __init__(
        self, case: SceneCase, cache: Path, stores: dict[str, Path], details: dict[str, Any], seconds: float
    ) -> None:
        self.case, self.cache, self.stores = case, cache, stores  # folders of the parts "held_out" and "test"
        self.details, self.seconds = details, seconds
        self._store_of = {
            name: UnaryStore(folder)
            for part, folder in stores.items()
            for name in case.names(getattr(case, part).inputs)
        }

    def scores(self, name: str) -> Array:
        """Return the scores of one scene, (H, W, 8)."""
        store = self._store_of[name]
        if name not in store:
            raise InputError(f"{store.folder} has no scores of scene {name}, expected scores of every scene")
        return store[name]

    def logits(self, inputs: Array) -> Array:
        """Return the scores on canvases (N, H, W, 8), 0 outside."""
        return self.case.canvas([self.scores(name) for name in self.case.names(inputs)], 0.0)

    def probability(self, inputs: Array) -> Array:
        return softmax(self.logits(inputs), axis=-1)

    def network(self, part: str) -> Path:
        """Return the path of the network that scored a part."""
        path = self.stores[part].parent / "network.safetensors"
        if not path.exists():
            raise InputError(f"{path} does not exist: remove {path.parent} to train the network again")
        return path

    def content(self) -> str:
        """Return a digest of all scores."""
        return digest({name: hash_of(self.scores(name)) for name in self._store_of})

    def check(self, path: Path, content: str | None) -> None:
        """Raise an InputError if the scores differ from the digest stored in a file."""
        if self.content() != content:
            raise InputError(f"{self.cache} contains other scores than those that {path} was computed from")

    def save(self, path: Path) -> None:
        """Write the folders of the scores and their digest, by which changes are detected."""
        folders = {part: str(folder.relative_to(self.cache)) for part, folder in self.stores.items()}
        write_model(path, {}, {"kind": FILE_KIND, "folders": folders, "content": self.content()})


@dataclass(frozen=True, kw_only=True)
class UnariesModel(Model):
    """Boosting or a network, depending on the case's level; ``settings`` may contain the network's ``loss``."""

    features: str = "scene"

    def constants(self, case: Case) -> dict[str, Any]:
        """Return the recipe of the level."""
        if case.level == "boosted":
            from locpmap_paper.experiments.scenes.boosted_unaries import BoostedSettings

            return asdict(BoostedSettings())
        from locpmap_paper.experiments.scenes.training import RECIPES
        from locpmap_paper.experiments.scenes.unseen import SCALES

        return {"recipe": asdict(RECIPES[case.level]), "scales": list(SCALES)}

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        assert isinstance(case, SceneCase)
        began = time.perf_counter()
        make: Callable[..., UnaryStore] = boosted_logits
        if case.level != "boosted":
            make = partial(network_logits, **self.settings)
        fit, held_out, test = (case.names(part.inputs) for part in (case.fit, case.held_out, case.test))
        # Held-out scenes are predicted by a model trained on the others, test scenes by one trained on both parts.
        jobs = {"held_out": (fit, held_out), "test": (fit + held_out, test)}
        folders = {part: make(case, *names, store, device, progress).folder for part, names in jobs.items()}
        return SceneUnaries(case, store.cache, folders, dict(self.settings), time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        assert isinstance(case, SceneCase)
        _, header = read_model(path)
        if header.get("kind") != FILE_KIND:
            raise InputError(f"{path} holds a {header.get('kind')!r}, expected {FILE_KIND!r}")
        folders = {part: store.cache / folder for part, folder in header["folders"].items()}
        found = SceneUnaries(case, store.cache, folders, {}, 0.0)
        found.check(path, header["content"])
        return found


def boosted_logits(
    case: SceneCase, learn: Sequence[str], predict: Sequence[str], store: Fits, device: str, progress: Progress
) -> UnaryStore:
    """Return the predictions for some scenes by boosting trained on others; `device` is ignored."""
    from locpmap_paper.experiments.scenes.boosted_unaries import boosted_unaries

    return boosted_unaries(
        case.data.scenes,
        Split(tuple(learn), tuple(predict)),
        folder=store.cache / "boosted",
        seed=case.seed,
        fast=case.experiment.fast,
        progress=_Steps(progress),
    )


def network_logits(
    case: SceneCase,
    learn: Sequence[str],
    predict: Sequence[str],
    store: Fits,
    device: str,
    progress: Progress,
    **settings: Any,
) -> UnaryStore:
    """Return the logits for some scenes by a network of the case's kind trained on others."""
    from locpmap_paper.experiments.scenes.unseen import unseen_logits

    return unseen_logits(
        case.level,
        case.data.scenes,
        learn,
        predict,
        store.cache / "networks",
        seed=case.seed,
        device=device,
        progress=progress,
        fast=case.experiment.fast,
        weights_folder=case.data.folder,
        **settings,
    )


class _Steps(Silent):
    """Forwards the steps of a stage."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def step(self, done: int, total: int) -> None:
        self.progress(done, total)


class ScaledUnaries(Fitted):
    """Scores times one factor, which changes the confidence but not the labels."""

    def __init__(self, base: SceneUnaries, scale: float, seconds: float) -> None:
        self.base, self.scale, self.seconds = base, scale, seconds
        self.details: dict[str, Any] = {"scale": scale}

    def probability(self, inputs: Array) -> Array:
        return softmax(self.scale * self.base.logits(inputs), axis=-1)

    def save(self, path: Path) -> None:
        write_model(path, {"scale": np.array([self.scale])}, {})


@dataclass(frozen=True, kw_only=True)
class ScaledModel(Model):
    """Temperature scaling (Guo et al., 2017) on held-out scenes, the standard baseline for calibration."""

    features: str = "scene"

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        base, began = unaries_of(self, store), time.perf_counter()
        names, labels = base.case.names(case.held_out.inputs), base.case.data.scenes.labels
        known = np.concatenate([labels[number][:, ::EVERY].ravel() for number in case.held_out.inputs])
        some = (base.scores(name)[:, ::EVERY] for name in names)
        scores = np.concatenate([each.reshape(-1, each.shape[-1]) for each in some])
        scores, known = scores[known != VOID], known[known != VOID]

        def loss(scale: float) -> float:
            return -float(log_softmax(scale * scores, axis=1)[np.arange(len(known)), known].mean())

        best = minimize_scalar(loss, bounds=BOUNDS, method="bounded", options={"xatol": 1e-3})
        return ScaledUnaries(base, float(best.x), time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return ScaledUnaries(unaries_of(self, store), float(read_model(path)[0]["scale"][0]), 0.0)


def unaries_of(model: Model, store: Fits) -> SceneUnaries:
    """Return the unaries that a model builds on."""
    base = store.fitted(model.needs[0])
    assert isinstance(base, SceneUnaries)
    return base
