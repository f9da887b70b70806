"""Boosted unaries: what gradient boosting says of every pixel of every scene, by models that never saw its labels.

Two stages: the first sees the appearance of an atom and of what surrounds it, the second also what the first said there
and around it (auto-context).  In both, the training scenes are in K folds, and each fold is predicted by the model of
the others.  A test scene is predicted by K chains of a first and a second model, and their probabilities are averaged:
a training scene has the word of one model of (1 - 1/K) of the scenes, a test scene that of K such models.

As in all stacking over one set of folds, the second model of a fold learns from first predictions by models that had
seen that fold's labels; it never sees the labels themselves.  How often a class is drawn for the samples is counted
over all training scenes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats import PathLike, read_array, write_array
from locpmap_paper.data.scenes import Scenes
from locpmap_paper.experiments.progress import RunProgress, Silent
from locpmap_paper.experiments.scenes.boosting import Boosting, count_labels, draw_pixels, learn
from locpmap_paper.experiments.scenes.context import auto_context
from locpmap_paper.experiments.scenes.feature_cache import FeatureCache, Vocabulary, hash_of
from locpmap_paper.experiments.scenes.split import Split, numbers_of
from locpmap_paper.experiments.scenes.store import UnaryStore
from locpmap_paper.experiments.stages import digest

Array = npt.NDArray[Any]

STAGES = (1, 2)


@dataclass(frozen=True)
class BoostedSettings:
    """How many folds, and how words and classifiers are learned."""

    n_folds: int = 5
    boosting: Boosting = field(default_factory=Boosting)
    vocabulary: Vocabulary = field(default_factory=Vocabulary)


FAST = BoostedSettings(2, Boosting(n_pixels=100, n_rounds=5, least_in_leaf=10), Vocabulary(n_words=4, n_scenes=10))


def boosted_unaries(
    scenes: Scenes,
    split: Split,
    *,
    folder: PathLike,
    seed: int = 0,
    fast: bool = False,
    progress: RunProgress | None = None,
    settings: BoostedSettings | None = None,
) -> UnaryStore:
    """Log-probabilities of the 8 classes for every pixel of every scene of a split, out of fold for training scenes.

    They are calibrated to how often the classes occur among the labelled pixels of the training scenes.  About half an
    hour for 600 and 115 scenes on two cores, under 1 GB of memory and 4 GB on disk.  Everything finished is kept in the
    folder, scene by scene, and a call with the same arguments goes on from there.

    Args:
        scenes: All scenes.
        split: Which to learn from and which to predict besides.
        folder: Where features, predictions and the result are kept; made if need be.
        seed: Of folds, words, samples and trees.
        fast: A smoke run: few words, folds and trees.
        progress: Told of every stage and every scene.
        settings: In place of the usual ones.
    """
    chosen = settings or (FAST if fast else BoostedSettings())
    if not 2 <= chosen.n_folds <= len(split.train):
        raise InputError(f"n_folds is {chosen.n_folds}, expected 2 to {len(split.train)}, the scenes to learn from")
    return _Run(scenes, split, chosen, seed, Path(folder), progress or Silent()).unaries()


class _Run:
    """One call of :func:`boosted_unaries`: the features are made at once, all else by :meth:`unaries`."""

    def __init__(
        self, scenes: Scenes, split: Split, settings: BoostedSettings, seed: int, folder: Path, progress: RunProgress
    ) -> None:
        self.split, self.settings, self.seed, self.progress = split, settings, seed, progress
        self.names = (*split.train, *split.test)
        self.labels = {scenes.names[k]: scenes[k][2] for k in numbers_of(scenes, split.train)}
        order = np.random.default_rng(seed).permutation(len(split.train))
        self.fold_of = {split.train[k]: place % settings.n_folds for place, k in enumerate(order)}
        self.n_steps = 2 + len(STAGES) * settings.n_folds

        progress.stage(0, self.n_steps, "features")
        vocabulary = replace(settings.vocabulary, seed=seed)
        self.cache = FeatureCache(scenes, split.train, vocabulary, folder / "features")
        self.cache.make(self.names, progress.step)
        train = [[self.cache.keys[name], hash_of(self.labels[name])] for name in split.train]
        test = [[name, self.cache.keys[name]] for name in split.test]
        identity = digest({"settings": asdict(settings), "seed": seed, "train": train, "test": test})
        self.folder = folder / f"boosted-{identity[:24]}"

    def unaries(self) -> UnaryStore:
        """All stages, then a map of every scene."""
        for stage in STAGES:
            self._boost(stage)
        self.progress.stage(self.n_steps - 1, self.n_steps, "maps")
        store = UnaryStore(self.folder / "unaries")
        for done, name in enumerate(self.names, 1):
            if name not in store:
                store.put(name, np.log(self.probability(name))[self.cache.regions(name)[0]])
            self.progress.step(done, len(self.names))
        return store

    def probability(self, name: str, stage: int = STAGES[-1]) -> Array:
        """(n_atoms, n_labels): the mean of what all models say that never saw the scene."""
        return np.mean([read_array(self._path(stage, fold, name)) for fold in self._folds(name)], axis=0)

    def _boost(self, stage: int) -> None:
        """With every fold's model in turn, predict what it never saw and what is not there yet."""
        sample: tuple[Array, Array, Array] | None = None
        for fold in range(self.settings.n_folds):
            before = 1 + (stage - 1) * self.settings.n_folds + fold
            self.progress.stage(before, self.n_steps, f"stage {stage}, fold {fold + 1}")
            unseen = [name for name in self.names if fold in self._folds(name)]
            missing = [name for name in unseen if not self._path(stage, fold, name).exists()]
            if not missing:
                continue
            sample = sample or self._sample(stage)
            features, labels, folds = sample
            others = folds != fold
            natural = self._count([name for name in self.split.train if self.fold_of[name] != fold])
            classifier = learn(features[others], labels[others], natural, self.settings.boosting, seed=self.seed)
            self._path(stage, fold, missing[0]).parent.mkdir(parents=True, exist_ok=True)
            for done, name in enumerate(missing, 1):
                write_array(self._path(stage, fold, name), classifier(self._table(stage, fold, name)))
                self.progress.step(done, len(missing))

    def _sample(self, stage: int) -> tuple[Array, Array, Array]:
        """Features (n, F), labels (n,) and folds (n,) of the pixels drawn from all training scenes."""
        how = self.settings.boosting
        weights = self._count(self.split.train).clip(1) ** -how.balance
        tables, labels, folds = [], [], []
        for k, name in enumerate(self.split.train):
            truth, fold = self.labels[name].ravel(), self.fold_of[name]
            drawn = draw_pixels(truth, weights, how.n_pixels, np.random.default_rng([self.seed, k]))
            tables.append(self._table(stage, fold, name)[self.cache.regions(name)[0].ravel()[drawn]])
            labels.append(truth[drawn])
            folds.append(np.full(len(drawn), fold))
        return np.concatenate(tables), np.concatenate(labels), np.concatenate(folds)

    def _table(self, stage: int, fold: int, name: str) -> Array:
        """(n_atoms, F): what a stage's model is told of a scene that the models of that fold never saw."""
        features = self.cache.features(name).astype(np.float32)
        if stage == STAGES[0]:
            return features
        said = read_array(self._path(stage - 1, fold, name))
        return np.concatenate([auto_context(said, self.cache.regions(name)), features], axis=1)

    def _folds(self, name: str) -> Sequence[int]:
        """Those whose models never saw the scene."""
        return (self.fold_of[name],) if name in self.fold_of else range(self.settings.n_folds)

    def _count(self, names: Sequence[str]) -> Array:
        return np.sum([count_labels(self.labels[name]) for name in names], axis=0)

    def _path(self, stage: int, fold: int, name: str) -> Path:
        return self.folder / f"stage-{stage}" / f"fold-{fold}" / f"{name}.npy"
