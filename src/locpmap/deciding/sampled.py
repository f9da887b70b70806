"""Decisions judged by samples of whole label maps: mean overlap, and boundary IoU.

Unlike samples, probabilities of single sites do not determine which labels occur together, or whether one occurs.

The band of a label in a map is the set of its pixels with another label within d pixels (chessboard distance).  The
boundary IoU of a label compares its bands in two maps, and its mean is over the labels with a band in either map.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, is_tensor, namespace
from locpmap.deciding.inputs import Sites, as_labels

WIDTH = 0.02  # of the diagonal of the image


def pair_counts(one: Any, other: Any, n_labels: int) -> Array:
    """Return the number of sites (L, L) with each pair of labels.  Cost: one histogram."""
    pairs, n_pairs = (one * n_labels + other).ravel(), n_labels**2
    counts = pairs.bincount(minlength=n_pairs).cpu().numpy() if is_tensor(pairs) else np.bincount(pairs, None, n_pairs)
    return np.asarray(counts.reshape(n_labels, n_labels))


def best_decision(measure: str, decisions: Sequence[Any], sites: Sites, samples: Any) -> tuple[Any, float]:
    """Return the decision (S,) with the best mean overlap over samples (M, ..) as true labels, and that mean.

    ``measure`` is "iou" or "dice".  Of equal decisions, the first is returned.  Cost: one histogram per sample and
    decision.
    """
    n_labels = sites.rows.shape[1]
    sums = np.zeros(len(decisions))
    for sample in samples:
        labels = as_labels(sample)
        truth = labels.reshape(-1) if sites.there is None else labels[sites.there]
        sums += [overlap_of_maps(measure, pair_counts(decision, truth, n_labels)) for decision in decisions]
    best = int(sums.argmax())
    return decisions[best], float(sums[best]) / len(samples)


def overlap_of_maps(measure: str, counts: Array, n_labels: int | None = None) -> float:
    """Return the mean overlap of two maps, from `pair_counts`, over the labels that occur; 1 if there are none.

    ``n_labels`` limits the mean to the first labels.
    """
    both, sums = np.diag(counts)[:n_labels], (counts.sum(0) + counts.sum(1))[:n_labels]
    occurs = sums > 0
    values = both[occurs] / (sums - both)[occurs] if measure == "iou" else 2 * both[occurs] / sums[occurs]
    return float(values.mean()) if len(values) else 1.0


def band_width(height: int, width: int) -> int:
    """Return the distance d: 2 % of the diagonal, at least one pixel."""
    return max(1, round(WIDTH * math.hypot(height, width)))


def bands(labels: Any, n_labels: int, distance: int) -> Any:
    """Return a map (H, W) of the label where a pixel is in a band, and ``n_labels`` elsewhere.

    Masked pixels (-1) and positions outside the image are in no band, and do not count as another label.
    """
    masked = labels < 0
    xp = namespace(labels)
    largest = _largest(labels, distance)
    smallest = n_labels - _largest(xp.where(masked, 0, n_labels - labels), distance)
    return xp.where((largest > smallest) & ~masked, labels, n_labels)


def _largest(labels: Any, distance: int) -> Any:
    """Return the largest value within a chessboard distance of each pixel."""
    if is_tensor(labels):
        pool = namespace(labels).nn.functional.max_pool2d
        rows = pool(labels[None, None].float(), (2 * distance + 1, 1), 1, (distance, 0))
        return pool(rows, (1, 2 * distance + 1), 1, (0, distance))[0, 0].to(labels.dtype)
    from scipy.ndimage import maximum_filter

    return maximum_filter(labels, size=2 * distance + 1, mode="nearest")


def boundary_iou(one: Any, other: Any, n_labels: int) -> float:
    """Return the mean IoU of two maps of :func:`bands`; 1 if neither has a boundary.

    Cost: one histogram of pairs.
    """
    return overlap_of_maps("iou", pair_counts(one, other, n_labels + 1), n_labels)


def best_map(candidates: Sequence[Any], samples: Any, n_labels: int) -> tuple[Any, float]:
    """Return the map with the highest mean boundary IoU over the samples (M, H, W), and that mean.

    Candidates are the given maps (H, W) and the samples themselves, each of which is compared with the others.
    Cost: O(M² H W).
    """
    n_samples, height, width = samples.shape
    distance = band_width(height, width)
    truths = [bands(sample, n_labels, distance) for sample in samples]
    means: list[float] = []
    for candidate in candidates:
        found = bands(candidate, n_labels, distance)
        means.append(float(np.mean([boundary_iou(found, truth, n_labels) for truth in truths])))
    values = np.zeros((n_samples, n_samples))
    for a in range(n_samples):
        for b in range(a):
            values[a, b] = values[b, a] = boundary_iou(truths[a], truths[b], n_labels)
    if n_samples > 1:
        means += (values.sum(1) / (n_samples - 1)).tolist()
    best = int(np.argmax(means))
    return [*candidates, *samples][best], means[best]
