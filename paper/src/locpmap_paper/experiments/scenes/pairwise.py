"""CRFs on the unaries of scenes, with couplings from boundaries or colours to near and distant neighbours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locpmap import CRF, Potentials
from locpmap.features import Features
from locpmap.graphs import Grid
from locpmap.learning import FitOptions
from locpmap_paper.data.scenes import CLASSES, VOID
from locpmap_paper.experiments.experiment import Array, Case
from locpmap_paper.experiments.model import Fits, Fitted, Model, Progress
from locpmap_paper.experiments.raw import max_iterations, named_weights
from locpmap_paper.experiments.scenes.boundaries import boundary_maps, edge_features
from locpmap_paper.experiments.scenes.canvas import crf_on_canvas
from locpmap_paper.experiments.scenes.unaries import SceneUnaries, unaries_of

# Held-out scenes for learning weights, further ones for early stopping of consistent learning, and the largest number
# of checks on them.  A dozen weights need no more than a window of each scene.
N_FIT, N_STOP = 60, 40
MOST_CHECKS = 30
WINDOW = (128, 160)


@dataclass(frozen=True)
class Couplings:
    """Edge features of scenes for the given kinds and steps to neighbours."""

    kinds: tuple[str, ...]  # "boundary", "colour" or both
    steps: tuple[tuple[int, int], ...]  # (rows down, columns right), not negative
    base: SceneUnaries
    cache: Path
    device: str

    def of(self, inputs: Array, progress: Progress | None = None) -> list[Features]:
        """Return the features of scenes, each at its own size."""
        return [self._features(*arrays) for _, arrays in self._arrays(inputs, progress)]

    def windows(self, inputs: Array, seed: int, progress: Progress) -> list[tuple[Features, Array]]:
        """Return the features and labels of a random window of every scene."""
        rng, found = np.random.default_rng(seed), []
        for number, (scores, pairwise) in self._arrays(inputs, progress):
            labels = self.base.case.data.scenes.labels[number]
            height, width = np.minimum(WINDOW, labels.shape)
            top, left = (int(rng.integers(n + 1)) for n in np.subtract(labels.shape, (height, width)))
            here = slice(top, top + height), slice(left, left + width)
            along = [
                features[top : top + max(0, height - down), left : left + max(0, width - right)]
                for features, (down, right) in zip(pairwise, self.steps, strict=True)
            ]
            found.append((self._features(scores[here], along), labels[here]))
        return found

    def _arrays(self, inputs: Array, progress: Progress | None) -> Iterator[tuple[int, tuple[Array, Sequence[Array]]]]:
        """Yield index, scores and edge features of each scene."""
        case = self.base.case
        names = case.names(inputs)
        maps: list[Any] = [None] * len(names)
        if "boundary" in self.kinds:
            maps = boundary_maps(
                case.data.scenes,
                names,
                self.cache / "boundaries",
                published=not case.experiment.fast,
                weights_folder=case.data.folder,
                device=self.device,
                progress=progress,
            )
        for number, name, edges in zip(inputs, names, maps, strict=True):
            image = case.data.scenes[number][1]
            yield number, (self.base.scores(name), edge_features(image, edges, self.steps, self.kinds))

    def _features(self, scores: Array, pairwise: Sequence[Array]) -> Features:
        names = ("constant", *self.kinds)
        return Features.grid(
            scores, tuple(pairwise), connectivity=self.steps, unary_names=CLASSES, pairwise_names=names
        )


class SceneCRF(Fitted):
    """A fitted CRF with its unaries and edge features."""

    def __init__(self, crf: CRF, couplings: Couplings, details: dict[str, Any], seconds: float) -> None:
        self.crf, self.couplings, self.details, self.seconds = crf, couplings, details, seconds

    def potentials(self, inputs: Array) -> Potentials:
        """Return the potentials on canvases, with everything outside the scenes masked."""
        case = self.couplings.base.case
        scenes = [self.crf.potentials(features) for features in self.couplings.of(inputs)]
        return crf_on_canvas(
            [scene.unflatten(scene.unary) for scene in scenes],
            [_weights_of(scene) for scene in scenes],
            self.couplings.steps,
            case.experiment.size(case.data),
        )

    def save(self, path: Path) -> None:
        self.crf.save(path)


def _weights_of(scene: Potentials) -> list[Array]:
    """Return the Potts weights, one array per step."""
    grid, weights = scene.structure, scene.pairwise.weights
    assert isinstance(grid, Grid)
    assert weights is not None
    return [weight.reshape(shape) for weight, shape in zip(weights, grid.direction_shapes, strict=True)]


@dataclass(frozen=True, kw_only=True)
class SceneCRFModel(Model):
    """Potts weights per step and feature, learned on held-out scenes.

    ``settings`` contain ``kinds`` and ``steps``.  With pseudolikelihood, the unaries are used unscaled: a learned scale
    would shrink towards 0, because the true labels of the neighbours predict a pixel almost perfectly.  Consistent
    learning learns a scale.
    """

    features: str = "scene"

    def constants(self, case: Case) -> dict[str, Any]:
        """Return the numbers of scenes and checks and the size of windows."""
        return {"scenes": [N_FIT, N_STOP], "checks": MOST_CHECKS, "window": list(WINDOW)}

    def fit(self, case: Case, store: Fits, device: str, progress: Progress) -> Fitted:
        began, consistent = time.perf_counter(), self.learning == "consistent"
        couplings = self._couplings(store, device)
        seed = case.seed_of(f"training of {self.name}")
        n_fit = min(N_FIT, len(case.held_out) // 2)
        seen = couplings.windows(case.held_out.inputs[: n_fit + N_STOP], seed, progress)
        features, truth = map(list, zip(*seen, strict=True))
        crf = CRF(
            len(CLASSES),
            features=None,
            unary="temperature" if consistent else "given",
            potts=True,
            label_names=CLASSES,
            ignore_label=VOID,
        )
        result = crf.fit(
            features[:n_fit],
            truth[:n_fit],
            self.learning,
            validation=(features[n_fit:], truth[n_fit:]) if consistent else None,
            options=FitOptions(
                max_iterations=min(max_iterations(case), MOST_CHECKS) if consistent else max_iterations(case),
                standard_errors=False,
            ),
            seed=seed,
            progress=lambda done, most, value: progress(done, most),
            device=device,
        )
        return SceneCRF(crf, couplings, {"weights": named_weights(result)}, time.perf_counter() - began)

    def load(self, path: Path, case: Case, store: Fits, device: str) -> Fitted:
        return SceneCRF(CRF.load(path), self._couplings(store, device), {}, 0.0)

    def _couplings(self, store: Fits, device: str) -> Couplings:
        steps = tuple((down, right) for down, right in self.settings["steps"])
        return Couplings(tuple(self.settings["kinds"]), steps, unaries_of(self, store), store.cache, device)
