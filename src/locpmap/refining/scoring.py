"""Scores of probabilities per image, as sums that can be combined over images and jackknifed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self, TypeVar

import numpy as np

from locpmap.arrays import Array, frozen, is_tensor
from locpmap.deciding.sampled import bands, overlap_of_maps, pair_counts
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.metrics import LEAST

N_STANDARD_ERRORS = 2.0  # smallest significant difference
N_BINS = 15  # as in metrics.expected_calibration_error
NEAR = 2  # pixels: the largest distance, along each axis, from a pixel near a boundary to another label


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over the pixels of one or several images."""

    confusion: Array  # (K, K) number of pixels by true and predicted label
    bins: Array  # (15, 2) sum of (correct - confidence) and number of pixels, by confidence
    loss: float  # negative log-likelihood, summed over pixels
    n_pixels: int

    def __add__(self, other: Self) -> Self:
        n = self.n_pixels + other.n_pixels
        return type(self)(self.confusion + other.confusion, self.bins + other.bins, self.loss + other.loss, n)

    def __sub__(self, other: Self) -> Self:
        n = self.n_pixels - other.n_pixels
        return type(self)(self.confusion - other.confusion, self.bins - other.bins, self.loss - other.loss, n)

    @property
    def iou(self) -> float:
        """Mean intersection over union, over the labels that occur in the true labels or in the prediction."""
        return overlap_of_maps("iou", self.confusion)

    @property
    def ece(self) -> float:
        """Expected calibration error."""
        return float(np.abs(self.bins[:, 0]).sum() / self.n_pixels)

    @property
    def nll(self) -> float:
        """Negative log-likelihood per pixel."""
        return self.loss / self.n_pixels


Summed = TypeVar("Summed", Score, Array)  # what can be added up over images

METRICS: dict[str, Callable[[Score], float]] = {
    "IoU": lambda score: score.iou,
    "ECE": lambda score: score.ece,
    "NLL": lambda score: score.nll,
}


def score(probability: Array, truth: Array, labels: Array | None = None) -> Score:
    """Score probabilities (.., K) and labels (..) against true labels (..); pixels with a negative one are ignored.

    The labels are the most probable ones by default. Only the confusion matrix depends on them.
    """
    counted = truth >= 0
    p, true = np.asarray(probability)[counted], truth[counted]
    n_labels, found, confidence = p.shape[-1], p.argmax(-1), p.max(-1).astype(np.float64)
    table = confusion(found if labels is None else labels[counted], true, n_labels)
    place = np.clip(np.ceil(confidence * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    gap = np.bincount(place, (found == true) - confidence, N_BINS)
    bins = np.stack([gap, np.bincount(place, minlength=N_BINS)], axis=1)
    loss = -np.log(np.maximum(p[np.arange(len(true)), true].astype(np.float64), LEAST)).sum()
    return Score(table, bins, float(loss), len(true))


def confusion(labels: Array, truth: Array, n_labels: int) -> Array:
    """Count pixels by true and decided label, (K, K); those with a negative true label are ignored."""
    counted = truth >= 0
    return pair_counts(truth[counted], labels[counted], n_labels)


def near_boundary(labels: Array, n_labels: int) -> Array:
    """Return which pixels (H, W), or voxels (D, H, W), have another label within `NEAR` steps along each axis.

    >>> near_boundary(np.array([[0, 0, 0, 0, 1, 1, -1]]), 2).astype(int).tolist()
    [[0, 0, 1, 1, 1, 1, 0]]
    """
    found: Array = bands(labels, n_labels, NEAR) < n_labels
    return found


def total(scores: Sequence[Summed]) -> Summed:
    """Return the score of all images together, or the sum of arrays."""
    return reduce(add, scores)


def difference(new: Sequence[Summed], old: Sequence[Summed], metric: Callable[[Summed], float]) -> tuple[float, float]:
    """Return the difference (new - old) of a metric over all images, and its jackknife standard error over images.

    The standard error is NaN for a single image.
    """
    whole_new, whole_old, n = total(new), total(old), len(new)
    change, error = metric(whole_new) - metric(whole_old), float("nan")
    if n > 1:
        without = [metric(whole_new - a) - metric(whole_old - b) for a, b in zip(new, old, strict=True)]
        error = float(np.sqrt((n - 1) * np.var(without)))
    return change, error


def softmax(logits: Any) -> Any:
    """Compute the softmax over the last axis of an array or tensor; all zeros where every logit is -inf."""
    if is_tensor(logits):
        return logits.softmax(-1).nan_to_num_(0.0)
    scores = frozen(logits)
    found = np.empty_like(scores)
    rows = -1, scores.shape[-1]
    kernel_of("numba", "softmax_rows")(scores.reshape(rows), found.reshape(rows))
    return found
