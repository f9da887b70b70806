"""How good probabilities are on each image, so that wholes and their standard errors can be had from parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array, namespace
from locpmap.metrics import LEAST

LOWEST = -1e38  # scores below it are as good as -inf
N_BINS = 15  # as in metrics.expected_calibration_error


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over the pixels of one image, or of many."""

    confusion: Array  # (K, K) pixels by true and found label
    bins: Array  # (15, 2) right minus confidence, and pixels, by confidence
    loss: float  # negative log-likelihood
    n_pixels: int

    def __add__(self, other: Score) -> Score:
        n = self.n_pixels + other.n_pixels
        return Score(self.confusion + other.confusion, self.bins + other.bins, self.loss + other.loss, n)

    def __sub__(self, other: Score) -> Score:
        n = self.n_pixels - other.n_pixels
        return Score(self.confusion - other.confusion, self.bins - other.bins, self.loss - other.loss, n)

    @property
    def iou(self) -> float:
        """Mean over the labels that occur of intersection by union."""
        both = np.diag(self.confusion)
        either = self.confusion.sum(0) + self.confusion.sum(1) - both
        return float((both[either > 0] / either[either > 0]).mean())

    @property
    def ece(self) -> float:
        """Expected calibration error."""
        return float(np.abs(self.bins[:, 0]).sum() / self.n_pixels)

    @property
    def nll(self) -> float:
        """Negative log-likelihood per pixel."""
        return self.loss / self.n_pixels


METRICS: dict[str, Callable[[Score], float]] = {
    "IoU": lambda score: score.iou,
    "ECE": lambda score: score.ece,
    "NLL": lambda score: score.nll,
}


def score(probability: Array, truth: Array) -> Score:
    """Of probabilities (.., K) and true labels (..), below 0 where a pixel does not count."""
    counted = truth >= 0
    p, true = np.asarray(probability)[counted].astype(np.float64), truth[counted]
    n_labels, found, confidence = p.shape[-1], p.argmax(-1), p.max(-1)
    confusion = np.bincount(true * n_labels + found, minlength=n_labels**2).reshape(n_labels, n_labels)
    place = np.clip(np.ceil(confidence * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    gap = np.bincount(place, (found == true) - confidence, N_BINS)
    bins = np.stack([gap, np.bincount(place, minlength=N_BINS)], axis=1)
    loss = -np.log(np.maximum(p[np.arange(len(true)), true], LEAST)).sum()
    return Score(confusion, bins, float(loss), len(true))


def total(scores: Sequence[Score]) -> Score:
    """Of all images together."""
    first, *others = scores
    return sum(others, start=first)


def difference(new: Sequence[Score], old: Sequence[Score], metric: Callable[[Score], float]) -> tuple[float, float]:
    """How much larger a metric of all images together is, and the standard error: the jackknife over images."""
    if len(new) < 2:
        return metric(total(new)) - metric(total(old)), float("nan")
    whole_new, whole_old = total(new), total(old)
    without = [metric(whole_new - a) - metric(whole_old - b) for a, b in zip(new, old, strict=True)]
    n = len(without)
    return metric(whole_new) - metric(whole_old), float(np.sqrt((n - 1) * np.var(without)))


def softmax(logits: Any) -> Any:
    """Over the last axis, of NumPy or torch; nothing is likely where every label is forbidden."""
    xp = namespace(logits)
    p = xp.exp(logits - xp.amax(logits, -1)[..., None].clip(LOWEST, None))
    return p / p.sum(-1)[..., None].clip(1, None)
