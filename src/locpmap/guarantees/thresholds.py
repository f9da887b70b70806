"""Thresholds of probabilities with a guarantee: sets of labels, and abstention."""

from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.guarantees.conformal import ROUNDING

# Dense near 0 and 1, where most probabilities lie.
THRESHOLDS = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-9, 9, 721))), [1.0]])


def pixel_losses(probability: Array, truth: Array) -> tuple[Array, Array]:
    """Return two fractions of the pixels of an image, for each threshold, from probabilities (P, K) and labels (P,).

    The first is the fraction whose true label is less probable than the threshold. The second is the fraction whose
    most probable label is wrong although its probability is at least the threshold.

    >>> below, wrong = pixel_losses(np.array([[0.6, 0.4], [0.9, 0.1]]), np.array([1, 0]))
    >>> below[np.searchsorted(THRESHOLDS, 0.5)], wrong[np.searchsorted(THRESHOLDS, 0.5)]
    (np.float64(0.5), np.float64(0.5))
    """
    true = probability[np.arange(len(truth)), truth]
    misses = np.searchsorted(np.sort(true), THRESHOLDS) / len(true)
    mistaken = np.sort(probability.max(axis=1)[probability.argmax(axis=1) != truth])
    return misses, (len(mistaken) - np.searchsorted(mistaken, THRESHOLDS)) / len(true)


def label_sets(probability: Any, level: float) -> Any:
    """Return the smallest sets of labels with a total probability of at least ``level``, booleans (.., K).

    >>> from locpmap.guarantees.thresholds import label_sets
    >>> label_sets(np.array([[0.6, 0.3, 0.1], [0.95, 0.03, 0.02]]), 0.9).tolist()
    [[True, True, False], [True, False, False]]
    """
    p = np.asarray(probability)
    order = np.argsort(-p, axis=-1, kind="stable")
    ordered = np.take_along_axis(p, order, axis=-1)
    before = np.cumsum(ordered, axis=-1, dtype=np.float64) - ordered  # probability of the labels before this one
    found = np.zeros(p.shape, bool)
    least = max(level - ROUNDING, np.finfo(float).tiny)  # the most probable label belongs to every set
    np.put_along_axis(found, order, before < least, axis=-1)
    return found
