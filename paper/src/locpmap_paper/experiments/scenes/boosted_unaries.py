"""Boosted unaries: gradient boosting predictions for every pixel of every scene, by models not trained on its labels.

There are two stages.  The first uses the appearance of an atom and its surroundings.  The second also uses the first
stage's predictions there (auto-context).  In both stages the training scenes are split into K folds, and each fold is
predicted by the model trained on the others.  A test scene is predicted by K chains of a first and a second model,
whose probabilities are averaged.  So a training scene has the prediction of one model, and a test scene that of K.

As in all stacking with one set of folds, the second model of a fold is trained on first-stage predictions by models
that were trained on that fold's labels; it does not see the labels directly.  The class weights for sampling are
counted over all training scenes.
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
from locpmap_paper.experiments.scenes.split import Split, indices_of
from locpmap_paper.experiments.scenes.store import UnaryStore
from locpmap_paper.experiments.stages import digest

Array = npt.NDArray[Any]

STAGES = (1, 2)


@dataclass(frozen=True)
class BoostedSettings:
    """The number of folds, and the settings of words and classifiers."""

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
    """Return log-probabilities of the 8 classes for all pixels of a split's scenes, out of fold for training scenes.

    They are calibrated to the frequencies of classes in the training scenes.  600 training and 115 test scenes take
    about half an hour on two cores, under 1 GB of memory and 4 GB on disk.  Finished results are stored per scene, so
    that a call with the same arguments resumes.

    Args:
        scenes: All scenes.
        split: Names of training and test scenes.
        folder: Folder of features, predictions and results, created if needed.
        seed: Seed of folds, words, samples and trees.
        fast: Whether to do a smoke run with few words, folds and trees.
        progress: Receives the progress of stages and scenes.
        settings: Settings that replace the default ones.
    """
    chosen = settings or (FAST if fast else BoostedSettings())
    if not 2 <= chosen.n_folds <= len(split.train):
        raise InputError(f"n_folds is {chosen.n_folds}, expected 2 to {len(split.train)}, the training scenes")
    return _Run(scenes, split, chosen, seed, Path(folder), progress or Silent()).unaries()


class _Run:
    """One call of :func:`boosted_unaries`; features are computed on construction, the rest by :meth:`unaries`."""

    def __init__(
        self, scenes: Scenes, split: Split, settings: BoostedSettings, seed: int, folder: Path, progress: RunProgress
    ) -> None:
        self.split, self.settings, self.seed, self.progress = split, settings, seed, progress
        self.names = (*split.train, *split.test)
        self.labels = {scenes.names[k]: scenes[k][2] for k in indices_of(scenes, split.train)}
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
        """Run all stages, then compute a map of every scene."""
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
        """Return the mean prediction (n_atoms, n_labels) of all models not trained on the scene."""
        return np.mean([read_array(self._path(stage, fold, name)) for fold in self._folds(name)], axis=0)

    def _boost(self, stage: int) -> None:
        """Train one model per fold, and predict the scenes outside its training set that have no prediction yet."""
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
        """Return features (n, F), labels (n,) and folds (n,) of pixels drawn from all training scenes."""
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
        """Return the features (n_atoms, F) of a scene for a stage's model of this fold."""
        features = self.cache.features(name).astype(np.float32)
        if stage == STAGES[0]:
            return features
        said = read_array(self._path(stage - 1, fold, name))
        return np.concatenate([auto_context(said, self.cache.regions(name)), features], axis=1)

    def _folds(self, name: str) -> Sequence[int]:
        """Return the folds whose models were not trained on the scene."""
        return (self.fold_of[name],) if name in self.fold_of else range(self.settings.n_folds)

    def _count(self, names: Sequence[str]) -> Array:
        return np.sum([count_labels(self.labels[name]) for name in names], axis=0)

    def _path(self, stage: int, fold: int, name: str) -> Path:
        return self.folder / f"stage-{stage}" / f"fold-{fold}" / f"{name}.npy"
