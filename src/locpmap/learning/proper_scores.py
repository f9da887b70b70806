"""Proper scores of sampled label maps: areas in windows of several sizes, and whole maps.

A score is proper if its expectation is lowest for samples from the true distribution. All windows are therefore scored,
also those whose area seems certain.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.deciding.sampled import overlap_of_maps, pair_counts

WINDOWS = (8, 32, 90, 0)  # sides in pixels; 0 is the whole image
UNCERTAIN = (0.02, 0.98)  # mean fractions of a window between which its area is uncertain
ENERGY, PERIMETER = "energy", "perimeter"


def name_of(window: int) -> str:
    """Return the name of the areas in windows of a size.

    >>> [name_of(window) for window in WINDOWS]
    ['area 8', 'area 32', 'area 90', 'area whole']
    """
    return f"area {window or 'whole'}"


def crps(values: Array, truth: Array) -> Array:
    """Compute the continuous ranked probability score of samples (M, ..) against true values (..).

    The score is ``E|X - y| - E|X - X'| / 2`` with independent X and X'; lower is better. The estimate from M >= 2
    samples is unbiased.

    >>> crps(np.array([[0.0], [2.0]]), np.array([1.0])).tolist()
    [0.0]
    """
    ordered, n = np.sort(values, axis=0), len(values)
    ranks = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (ordered.ndim - 1))
    spread = 2 * (ranks * ordered).sum(axis=0) / (n * (n - 1))  # E|X - X'|
    return np.abs(values - truth).mean(axis=0) - spread / 2


def outside(values: Array, truth: Array, counted: Array) -> float:
    """Return how often true values (..) lie outside the range of M samples (M, ..), over the counted entries.

    The expectation is ``2 / (M + 1)`` if the true values have the distribution of the samples. A true value at
    an end of the range, equal to t samples, counts as ``1 / (t + 1)``. Return NaN if no entry is counted.

    >>> outside(np.array([[1.0, 2.0], [1.0, 4.0]]), np.array([0.5, 4.0]), np.array([True, True]))
    0.75
    """
    if not counted.any():
        return float("nan")
    values, truth = values[:, counted], truth[counted]
    tied = 1 / (1 + (values == truth).sum(axis=0))
    return float((tied * (truth <= values.min(axis=0)) + tied * (truth >= values.max(axis=0))).mean())


@dataclass(frozen=True, eq=False)
class Truth:
    """A true label map in the form that scores need: its labelled pixels, and the window of each of them.

    Attributes:
        map: (H, W) or (D, H, W) true labels, negative at void pixels.
        labels: (P,) true labels of the labelled pixels.
        places: (P,) their indices in the flattened map.
        n_labels: Number of labels K.
        windows: For each size in `WINDOWS` that fits into the map, the window of each labelled pixel, (P,), and the
            number of windows. Pixels outside all complete windows have this number as their window.
    """

    map: Array
    labels: Array
    places: Array
    n_labels: int
    windows: dict[int, tuple[Array, int]]

    @classmethod
    def of(cls, labels: Array, n_labels: int) -> Self:
        """Read a map (H, W) or (D, H, W) whose void pixels are negative."""
        places = np.flatnonzero(labels >= 0)
        coordinates, shape = np.stack(np.unravel_index(places, labels.shape)), np.array(labels.shape)
        windows = {}
        for window in WINDOWS:
            sides = np.full(labels.ndim, window) if window else shape
            across = shape // sides  # numbers of complete windows
            if n := int(np.prod(across)):
                at = coordinates // sides[:, None]
                inside = (at < across[:, None]).all(axis=0)
                number = np.where(inside, np.ravel_multi_index(tuple(at), tuple(across), mode="clip"), n)
                kept, number = np.unique(number, return_inverse=True)  # without windows of void pixels
                windows[window] = number, int((kept < n).sum())
        return cls(labels, labels.ravel()[places].astype(np.int64), places, n_labels, windows)

    def inside(self, samples: Array) -> Array:
        """Return maps (M, ..) at the labelled pixels, (M, P)."""
        return samples.reshape(len(samples), -1)[:, self.places].astype(np.int64)

    def areas(self, maps: Array, window: int) -> Array:
        """Return the fraction of each label in every window of a size, for maps (M, P): (M, n, K)."""
        number, n = self.windows[window]
        k, code = self.n_labels, number * self.n_labels
        counts = np.stack([np.bincount(code + one, minlength=(n + 1) * k)[: n * k].reshape(n, k) for one in maps])
        return counts / counts.sum(axis=2, keepdims=True)

    def scores(self, samples: Array) -> tuple[dict[str, float], dict[str, float]]:
        """Return the scores of samples (M, ..), and how often true values lie outside the range of samples.

        The scores are CRPS of areas and perimeters, and the energy score. `outside` computes the frequencies, for
        uncertain areas and for perimeters of labels that occur. Windows larger than the map and surfaces of volumes
        have NaN. Cost: O(M · H · W) for each score.
        """
        maps = self.inside(samples)
        score, beyond = (dict.fromkeys([*map(name_of, WINDOWS), PERIMETER], np.nan) for _ in range(2))
        for window in self.windows:
            values, true = self.areas(maps, window), self.areas(self.labels[None], window)[0]
            if len(true):
                mean = (values.sum(axis=0) + true) / (len(values) + 1)  # does not distinguish the true value
                score[name_of(window)] = float(crps(values, true).mean())
                beyond[name_of(window)] = outside(values, true, (mean > UNCERTAIN[0]) & (mean < UNCERTAIN[1]))
        if self.map.ndim == 2:  # samples of volumes would become too different, for the sake of their roughness
            values, true = np.stack([self.perimeter(sample) for sample in samples]), self.perimeter(self.map)
            score[PERIMETER] = float(crps(values, true).mean())
            beyond[PERIMETER] = outside(values, true, values.sum(axis=0) + true > 0)
        return score | {ENERGY: energy_score(maps, self.labels, self.n_labels)}, beyond

    def perimeter(self, labels: Array) -> Array:
        """Return the number of edges between each label of a map and other labels, without void pixels: (K,)."""
        found = np.zeros(self.n_labels)
        for axis in range(labels.ndim):
            along, known = np.moveaxis(labels, axis, 0), np.moveaxis(self.map, axis, 0) >= 0
            differ = (along[1:] != along[:-1]) & known[1:] & known[:-1]
            for side in (along[1:][differ], along[:-1][differ]):
                found += np.bincount(side, minlength=self.n_labels)
        return found


def energy_score(maps: Array, truth: Array, n_labels: int) -> float:
    """Return ``E d(X, y) - E d(X, X') / 2`` with the Jaccard distance d, for maps (M, P) and a true map (P,).

    The second expectation is over the M pairs of successive samples, the last and the first included.
    """
    to_truth = [jaccard_distance(one, truth, n_labels) for one in maps]
    between = [jaccard_distance(one, other, n_labels) for one, other in zip(maps, np.roll(maps, 1, 0), strict=True)]
    return float(np.mean(to_truth) - np.mean(between) / 2)


def jaccard_distance(a: Any, b: Any, n_labels: int) -> float:
    """Return 1 minus the mean IoU over the labels that occur in either of two maps (P,).

    >>> round(jaccard_distance(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 3), 4)  # IoU 1/2 and 2/3
    0.4167
    """
    return 1 - overlap_of_maps("iou", pair_counts(a, b, n_labels))
