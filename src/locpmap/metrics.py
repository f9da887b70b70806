"""How good labels and probabilities are: overlap, calibration, likelihood, and whether unsure means wrong.

Labels have any shape, probabilities the same with a label axis behind it; sites whose true label is ``ignore_label`` do
not count.  NumPy or torch in, plain numbers out.

>>> import numpy as np
>>> truth, labels = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
>>> intersection_over_union(labels, truth, 2)
array([0.5       , 0.66666667])
>>> probability = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.2, 0.8]])
>>> round(negative_log_likelihood(probability, truth), 4)
0.367
"""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.arrays import Array, to_labels, to_numpy
from locpmap.errors import InputError, whole_number

LEAST = 1e-12  # a probability of 0 that came true would cost infinitely much


def accuracy(labels: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """The share of sites with the true label."""
    found, true = _labels(labels, truth, ignore_label)
    return float((found == true).mean())


def intersection_over_union(labels: Any, truth: Any, n_labels: int, *, ignore_label: int | None = None) -> Array:
    """Per label, (n_labels,): sites that have it in both by sites that have it in either; NaN where none does."""
    n_labels = whole_number("n_labels", n_labels, 1)
    found, true = _labels(labels, truth, ignore_label)
    if min(found.min(), true.min()) < 0 or max(found.max(), true.max()) >= n_labels:
        raise InputError(
            f"labels or truth hold a label outside 0 to {n_labels - 1}, expected n_labels={n_labels} labels"
        )
    both = np.bincount(found[found == true], minlength=n_labels)
    either = np.bincount(found, minlength=n_labels) + np.bincount(true, minlength=n_labels) - both
    return np.divide(both, either, out=np.full(n_labels, np.nan), where=either > 0)


def negative_log_likelihood(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """The mean of ``-log p(true label)``; probabilities below 1e-12 count as that."""
    p, true = _probabilities(probability, truth, ignore_label)
    return float(-np.log(np.maximum(_of_truth(p, true), LEAST)).mean())


def brier_score(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """The mean over sites of ``Σ_k (p_k - 1{k is true})²``: 0 is perfect, 2 the worst."""
    p, true = _probabilities(probability, truth, ignore_label)
    return float(((p**2).sum(axis=1) - 2 * _of_truth(p, true) + 1).mean())


def expected_calibration_error(
    probability: Any, truth: Any, *, n_bins: int = 15, ignore_label: int | None = None
) -> float:
    """How far confidence (the largest probability) is from accuracy: averaged over bins of equal width."""
    n_bins = whole_number("n_bins", n_bins, 1)
    p, true = _probabilities(probability, truth, ignore_label)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == true
    # A bin holds its upper bound, so that certainty lies in the last one.
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    gap = np.bincount(bins, confidence, n_bins) - np.bincount(bins, right, n_bins)
    return float(np.abs(gap).sum() / len(true))


def risk_coverage(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """The area under the risk-coverage curve: the mean error rate of the k most confident sites, over all k.

    0 is perfect; the plain error rate is what a confidence that knows nothing would get.  Ties share their errors.
    """
    p, true = _probabilities(probability, truth, ignore_label)
    confidence, wrong = p.max(axis=1), (p.argmax(axis=1) != true).astype(np.float64)
    _, group = np.unique(-confidence, return_inverse=True)
    shared = np.bincount(group, wrong) / np.bincount(group)
    risk = np.cumsum(shared[np.sort(group)]) / np.arange(1, len(true) + 1)
    return float(risk.mean())


def _labels(labels: Any, truth: Any, ignore_label: int | None) -> tuple[Array, Array]:
    found, true = to_labels(labels, "labels"), to_labels(truth, "truth")
    if found.shape != true.shape:
        raise InputError(f"labels has shape {found.shape}, expected {true.shape} like truth")
    keep = _counted(true, ignore_label)
    return found[keep], true[keep]


def _probabilities(probability: Any, truth: Any, ignore_label: int | None) -> tuple[Array, Array]:
    p, true = to_numpy(probability, "probability"), to_labels(truth, "truth")
    if p.shape[:-1] != true.shape:
        raise InputError(f"probability has shape {p.shape}, expected {true.shape} like truth and a label axis")
    keep = _counted(true, ignore_label)
    true = true[keep]
    if true.min() < 0 or true.max() >= p.shape[-1]:
        raise InputError(f"truth holds a label outside 0 to {p.shape[-1] - 1}, expected labels that probability has")
    return p[keep].astype(np.float64), true


def _counted(truth: Array, ignore_label: int | None) -> Array:
    keep = np.ones(truth.shape, bool) if ignore_label is None else truth != ignore_label
    if not keep.any():
        raise InputError("truth has no site that counts, expected at least one")
    return keep


def _of_truth(p: Array, truth: Array) -> Array:
    values: Array = p[np.arange(len(truth)), truth]
    return values
