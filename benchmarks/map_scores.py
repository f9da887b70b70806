"""Scores of sampled label maps against a true map: areas in windows, components, perimeter, and whole maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from locpmap.refining.areas import crps

Array = npt.NDArray[Any]
WINDOWS = (8, 32, 90, 0)  # sides in pixels; 0 is the whole image
UNCERTAIN = (0.02, 0.98)  # mean fractions of a window for which its area is scored
LEAST_COMPONENT = 12  # pixels
LEVEL = 0.9


@dataclass(frozen=True)
class MapScore:
    """Scores of the samples of one image: NaN where nothing could be scored."""

    coverage: dict[str, float]  # fraction of 90 % intervals that contain the true value
    crps: dict[str, float]
    energy: float
    n_labels: float  # mean number of labels in a sample


def map_score(samples: Array, truth: Array, n_labels: int) -> MapScore:
    """Score samples (M, H, W) against a map (H, W) with -1 at void pixels, which are ignored in both."""
    samples = np.where(truth < 0, -1, samples)
    coverage, score = {}, {}
    for window in WINDOWS:
        values, true = window_areas(samples, n_labels, window), window_areas(truth[None], n_labels, window)[0]
        name = f"area {window or 'whole'}"
        coverage[name], score[name] = _scored(values, true, _is_uncertain(values.mean(0)))
    for name, quantity in (("components", components), ("perimeter", perimeter)):
        values = np.array([quantity(sample, n_labels) for sample in samples])
        true = quantity(truth, n_labels)
        coverage[name], score[name] = _scored(values, true, (values.max(0) > 0) | (true > 0))
    occurring = np.mean([len(np.unique(sample[sample >= 0])) for sample in samples])
    return MapScore(coverage, score, energy_score(samples, truth, n_labels), float(occurring))


def _is_uncertain(mean: Array) -> Array:
    return (mean > UNCERTAIN[0]) & (mean < UNCERTAIN[1])


def _scored(values: Array, true: Array, counted: Array) -> tuple[float, float]:
    """Return coverage of the central interval and CRPS, over the counted entries."""
    counted = counted & np.isfinite(true)
    if not counted.any():
        return float("nan"), float("nan")
    values, true = values[:, counted], true[counted]
    low, high = np.quantile(values, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    return float(((low <= true) & (true <= high)).mean()), float(crps(values, true).mean())


def window_areas(maps: Array, n_labels: int, window: int) -> Array:
    """Return the fraction of each label in every window, (M, K, h, w); NaN in windows without labelled pixels."""
    n, height, width = maps.shape
    side = (height, width) if window == 0 else (window, window)
    h, w = height // side[0], width // side[1]
    cut = maps[:, : h * side[0], : w * side[1]].reshape(n, h, side[0], w, side[1])
    counts = np.stack([(cut == k).sum((2, 4)) for k in range(n_labels)], axis=1).astype(np.float64)
    total = counts.sum(1, keepdims=True)
    return np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)


def components(labels: Array, n_labels: int) -> Array:
    """Return the number of connected components of at least 12 pixels, per label."""
    found = np.zeros(n_labels)
    for k in np.unique(labels[labels >= 0]):
        numbers, _ = ndimage.label(labels == k)
        found[k] = (np.bincount(numbers.ravel())[1:] >= LEAST_COMPONENT).sum()
    return found


def perimeter(labels: Array, n_labels: int) -> Array:
    """Return the number of edges between each label and other labels; edges to void pixels do not count."""
    found = np.zeros(n_labels)
    for a, b in ((labels[:, 1:], labels[:, :-1]), (labels[1:], labels[:-1])):
        differ = (a != b) & (a >= 0) & (b >= 0)
        found += np.bincount(a[differ], minlength=n_labels) + np.bincount(b[differ], minlength=n_labels)
    return found


def energy_score(samples: Array, truth: Array, n_labels: int) -> float:
    """Return ``E d(X, y) - E d(X, X') / 2`` with the Jaccard distance d, over pairs of different samples."""
    inside = truth >= 0
    maps = [sample[inside] for sample in samples]
    to_truth = np.mean([jaccard_distance(sample, truth[inside], n_labels) for sample in maps])
    half = len(maps) // 2
    between = np.mean([jaccard_distance(maps[m], maps[m + half], n_labels) for m in range(half)])
    return float(to_truth - between / 2)


def jaccard_distance(a: Array, b: Array, n_labels: int) -> float:
    """Return 1 minus the mean IoU over the labels of either map."""
    table = np.bincount(a * n_labels + b, minlength=n_labels**2).reshape(n_labels, n_labels)
    both, union = np.diag(table), table.sum(0) + table.sum(1) - np.diag(table)
    return float(1 - (both[union > 0] / union[union > 0]).mean())


def mean_scores(scores: Sequence[MapScore]) -> dict[str, Any]:
    """Return means over images without those that have no value; quantities without any are left out."""
    names = [name for name in scores[0].crps if not all(np.isnan(s.crps[name]) for s in scores)]
    return {
        "coverage": {name: float(np.nanmean([s.coverage[name] for s in scores])) for name in names},
        "crps": {name: float(np.nanmean([s.crps[name] for s in scores])) for name in names},
        "energy": float(np.mean([s.energy for s in scores])),
        "labels per sample": float(np.mean([s.n_labels for s in scores])),
    }
