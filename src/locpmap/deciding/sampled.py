"""Mean overlap of decisions with samples of whole label maps.

Probabilities of single sites do not say which labels occur together, or whether a label occurs at all.  Samples do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, is_tensor
from locpmap.deciding.inputs import Sites, as_labels


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
        sums += [_overlap(measure, pair_counts(decision, truth, n_labels)) for decision in decisions]
    best = int(sums.argmax())
    return decisions[best], float(sums[best]) / len(samples)


def _overlap(measure: str, counts: Array) -> float:
    """Return the mean overlap of two maps over the labels that occur, 1 if there are none."""
    both, sums = np.diag(counts), counts.sum(0) + counts.sum(1)
    occurs = sums > 0
    values = both[occurs] / (sums - both)[occurs] if measure == "iou" else 2 * both[occurs] / sums[occurs]
    return float(values.mean()) if len(values) else 1.0
