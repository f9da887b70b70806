"""Scene labelling, the paper's third experiment: photographs of any size, eight classes, void pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from locpmap.errors import InputError
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.scenes import CLASSES, TWINS, VOID, Scenes, thumbnails
from locpmap_paper.experiments import paper
from locpmap_paper.experiments.decoders import Listed
from locpmap_paper.experiments.experiment import Array, Case, Experiment, Part
from locpmap_paper.experiments.scenes.canvas import on_canvas
from locpmap_paper.experiments.scenes.split import indices_of, split_scenes

N_TUNING = 20
SHRINK = 4  # downsampling factor in a smoke run
GREY = 127  # value outside a scene
UNARIES = {
    "boosted": "Unaries by gradient boosting on colour, texture, position and context.",
    "deeplab": "Unaries by a network of 19 convolutions with dilation, as in the paper, trained from scratch.",
    "pretrained": "Unaries by a feature pyramid network with an encoder pretrained on ImageNet.",
}
# Number of scenes for decoders that take seconds per scene; others get all.
LIMITS = {"graph-cut": 10, "perturb-and-max-product": 10}


@dataclass(frozen=True)
class SceneData:
    """The scenes, and the cache folder of published weights."""

    scenes: Scenes
    folder: PathLike | None

    @property
    def files(self) -> tuple[tuple[str, str, int], ...]:
        """(name, sha256, bytes) of the files that were read."""
        return self.scenes.files


def _same_photographs(scenes: Scenes, numbers: Array) -> list[int]:
    """Return the indices of other scenes that show the same photograph as one of these."""
    names = {scenes.names[number] for number in numbers}
    others = {b if a in names else a for a, b in TWINS if a in names or b in names}
    return [number for number, name in enumerate(scenes.names) if name in others - names]


@dataclass(frozen=True, eq=False, kw_only=True)
class SceneCase(Case):
    """One split; scenes are in the upper left corner of a canvas of the largest size, and inputs are indices."""

    data: SceneData

    @property
    def tuning(self) -> Part:
        """The last held-out scenes; pairwise weights are learned on the first."""
        some = slice(-N_TUNING, None)
        return Part(self.held_out.truth[some], self.held_out.inputs[some])

    def names(self, inputs: Array) -> list[str]:
        """Return the names of scenes by index."""
        return [self.data.scenes.names[number] for number in inputs]

    def images(self, part: Part) -> Array:
        """Return the photographs on canvases (N, H, W, 3), grey outside."""
        return self.canvas([self.data.scenes[number][1] for number in part.inputs], GREY)

    def outside(self, part: Part) -> Array:
        """Return the mask of the canvases outside the scenes."""
        return self.canvas([np.zeros(self.data.scenes.labels[number].shape, bool) for number in part.inputs], True)

    def canvas(self, arrays: Sequence[Array], fill: Any) -> Array:
        """Return arrays (h, w, ..) of scenes as one array (N, H, W, ..), padded with ``fill``."""
        return on_canvas(arrays, self.experiment.size(self.data), fill)


@dataclass(frozen=True, kw_only=True)
class SceneLabeling(Experiment):
    """Labelling of scenes; a level is a kind of unaries, and the seed determines the split."""

    labels: tuple[str, ...] = CLASSES
    pictured: tuple[int, ...] = (1, 7)  # tree and object, as in the paper's figure

    @property
    def n_held_out(self) -> int:
        """The number of held-out scenes, a fifth: pairwise weights are learned on logits for unseen scenes."""
        return self.n_train // 5

    @property
    def known_levels(self) -> dict[str, str]:
        """The kinds of unaries, each with a description."""
        return UNARIES

    @property
    def setting(self) -> dict[str, Any]:
        """No settings besides the numbers of scenes."""
        return {}

    def load(self, folder: Any = None) -> SceneData:
        """Load all scenes."""
        from locpmap_paper import data

        scenes = data.scenes(folder)
        return SceneData(
            thumbnails(scenes[: self.n_train + self.n_test], SHRINK, scenes.files) if self.fast else scenes, folder
        )

    def size(self, data: SceneData) -> tuple[int, int]:
        """Return height and width of the canvas."""
        height, width = np.max([labels.shape for labels in data.scenes.labels], axis=0).tolist()
        return height, width

    def case(self, data: SceneData, level: str, seed: int) -> SceneCase:
        """Return a seeded split, equal for all unaries, without scenes whose photograph is also in a later part."""
        wanted = self.n_train + self.n_test
        if len(data.scenes) < wanted:
            raise InputError(f"the data of {self.name} have {len(data.scenes)} scenes, expected at least {wanted}")
        split = split_scenes(data.scenes.names, self.n_train, seed=seed)
        train, test = (np.array(indices_of(data.scenes, names)) for names in (split.train, split.test[: self.n_test]))
        held_out = train[self.n_fit :]
        held_out = held_out[~np.isin(held_out, _same_photographs(data.scenes, test))]
        fit = train[: self.n_fit]
        fit = fit[~np.isin(fit, _same_photographs(data.scenes, np.concatenate([held_out, test])))]
        labels, size = data.scenes.labels, self.size(data)

        def part(numbers: Array) -> Part:
            return Part(on_canvas([labels[number] for number in numbers], size, VOID), numbers)

        parts = (part(numbers) for numbers in (fit, held_out, test))
        return SceneCase(self, level, seed, None, *parts, data=data)

    def n_given(self, decoder: Listed, n_test: int) -> int:
        """Return the number of test scenes for a decoder: all, or fewer if it is slow."""
        return min(LIMITS.get(decoder.name, n_test), n_test)

    def smoke(self) -> SceneLabeling:
        """Return the experiment with a few scenes."""
        return replace(self, n_train=15, n_test=2, n_ablation=1, n_seeds=1, n_at_once=1, fast=True)


STANFORD = SceneLabeling(
    name="stanford",
    title="Labelling the scenes of Stanford Background",
    dataset="scenes",
    n_train=600,
    n_test=115,
    n_ablation=20,
    levels=tuple(UNARIES),
    n_seeds=3,
    models=(
        *("unaries", "scaled", "pl-edges", "pl-colour", "consistent-edges", "consistent-colour", "consistent-far"),
        *("alike", "alike-edges", "pl-network", "pl-network-edges", "joint", "two-networks", "joint-beside"),
    ),
    ablated=(),
    paper=paper.SCENES,
    shown=("argmax", "icm", "locpmap", "locpmap-perturbed-conditional", "locpmap-tuned-sites"),
    n_at_once=8,
)
