"""A classifier of atoms by gradient boosting, trained on a sample with rare classes drawn more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap_paper.data.scenes import CLASSES, VOID

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

Array = npt.NDArray[Any]

N_LABELS = len(CLASSES)
LEAST = 1e-5  # smallest probability: a finite sample cannot rule out a class


@dataclass(frozen=True)
class Boosting:
    """Settings of the classifier.

    Args:
        n_pixels: Number of pixels drawn per scene; more pixels of one scene add little information.
        balance: A class is drawn in proportion to its frequency to the power of ``1 - balance``: 0 keeps the natural
            frequencies, 1 draws all classes equally often.
        n_rounds: Number of boosting rounds, each with one tree per class.
        learning_rate: Shrinkage of each tree.
        n_leaves: Number of leaves of a tree.
        least_in_leaf: Minimum number of pixels in a leaf; one scene alone should not fill a leaf.
        penalty: L2 penalty on leaf values.
        n_bins: Number of bins of a feature.
    """

    n_pixels: int = 40
    balance: float = 0.5
    n_rounds: int = 40
    learning_rate: float = 0.2
    n_leaves: int = 15
    least_in_leaf: int = 400
    penalty: float = 30.0
    n_bins: int = 63


@dataclass(frozen=True)
class Classifier:
    """Boosted trees, with a correction per class for its frequency in the sample."""

    trees: HistGradientBoostingClassifier
    correction: Array

    def __call__(self, features: Array) -> Array:
        """Return probabilities (n, n_labels) in float32 under natural frequencies, each at least about ``LEAST``."""
        said = np.zeros((len(features), N_LABELS), np.float32)
        known = self.trees.classes_
        said[:, known] = self.trees.predict_proba(features) * self.correction[known]
        said = np.maximum(said / said.sum(axis=1, keepdims=True), LEAST)
        return said / said.sum(axis=1, keepdims=True)


def learn(features: Array, labels: Array, natural: Array, how: Boosting, *, seed: int = 0) -> Classifier:
    """Train on a sample of features (n, F) and labels (n,); ``natural`` (n_labels,) counts all pixels of each class.

    30,000 pixels with 1,000 features take a minute on two cores.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    trees = HistGradientBoostingClassifier(
        max_iter=how.n_rounds,
        learning_rate=how.learning_rate,
        max_leaf_nodes=how.n_leaves,
        min_samples_leaf=how.least_in_leaf,
        l2_regularization=how.penalty,
        max_bins=how.n_bins,
        early_stopping=False,
        random_state=seed,
    )
    drawn = np.bincount(labels, minlength=N_LABELS)
    if np.count_nonzero(drawn) < 2:
        raise InputError(
            f"the sample contains the labels {np.unique(labels).tolist()}, expected at least two different ones"
        )
    correction = (natural / natural.sum()) / (drawn.clip(1) / drawn.sum())
    return Classifier(trees.fit(features, labels), correction)


def count_labels(labels: Array) -> Array:
    """Return the number of pixels (n_labels,) of each label, without void pixels."""
    return np.bincount(labels[labels != VOID], minlength=N_LABELS)


def draw_pixels(labels: Array, weights: Array, n_pixels: int, generator: np.random.Generator) -> Array:
    """Draw pixels of labels (S,) with replacement, in proportion to the weight of their class; return flat indices.

    Void pixels are never drawn; if all pixels are void, the result is empty.
    """
    seen = np.flatnonzero(labels != VOID)
    if not len(seen):
        return seen
    chances = weights[labels[seen]]
    return generator.choice(seen, n_pixels, p=chances / chances.sum())
