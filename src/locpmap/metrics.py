"""Metrics of labels and probabilities: overlap, calibration, likelihood and risk-coverage.

Labels may have any shape; probabilities have the same shape with a label axis appended.  Inputs are NumPy arrays or
torch tensors, outputs are plain numbers or NumPy arrays.

>>> import numpy as np
>>> truth, labels = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
>>> intersection_over_union(labels, truth, 2)
array([0.5       , 0.66666667])
>>> probability = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.2, 0.8]])
>>> round(negative_log_likelihood(probability, truth), 4)
0.367
"""

from typing import Any

import numpy as np

from locpmap.arrays import Array, to_labels, to_numpy
from locpmap.errors import InputError, whole_number

LEAST = 1e-12  # smallest probability, so that the likelihood stays finite


def accuracy(labels: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """Compute the fraction of sites whose label is correct.

    Args:
        labels (array): Predicted labels, integers of any shape.
        truth (array): True labels, of the same shape.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        float: Accuracy, from 0 to 1.

    Example:
        >>> lp.metrics.accuracy([0, 1, 1, 1], [0, 0, 1, 255], ignore_label=255)
        0.6666666666666666
    """
    found, true = _labels(labels, truth, ignore_label)
    return float((found == true).mean())


def intersection_over_union(labels: Any, truth: Any, n_labels: int, *, ignore_label: int | None = None) -> Array:
    """Compute the intersection over union of each label.

    Args:
        labels (array): Predicted labels, integers of any shape.
        truth (array): True labels, of the same shape.
        n_labels (int): Number of labels.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        array: Values (n_labels,).  A label that occurs in neither array has NaN.

    Example:
        >>> lp.metrics.intersection_over_union([0, 1, 1, 1], [0, 0, 1, 1], 3)
        array([0.5       , 0.66666667,        nan])
    """
    n_labels = whole_number("n_labels", n_labels, 1)
    found, true = _labels(labels, truth, ignore_label)
    if found.min() < 0 or max(found.max(), true.max()) >= n_labels:
        raise InputError(
            f"labels or truth contain a label outside 0 to {n_labels - 1}, expected n_labels={n_labels} labels"
        )
    both = np.bincount(found[found == true], minlength=n_labels)
    either = np.bincount(found, minlength=n_labels) + np.bincount(true, minlength=n_labels) - both
    return np.divide(both, either, out=np.full(n_labels, np.nan), where=either > 0)


def negative_log_likelihood(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """Compute the mean of ``-log p(true label)`` over sites.  Probabilities below 1e-12 are replaced by 1e-12.

    Args:
        probability (array): Probabilities, of the shape of ``truth`` with a label axis appended.
        truth (array): True labels, integers of any shape.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        float: Mean negative log-likelihood in nats; 0 is best.

    Example:
        >>> round(lp.metrics.negative_log_likelihood([[0.5, 0.5], [0.1, 0.9]], [0, 1]), 4)
        0.3993
    """
    p, true = _probabilities(probability, truth, ignore_label)
    return float(-np.log(np.maximum(_of_truth(p, true), LEAST)).mean())


def brier_score(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """Compute the mean over sites of ``Σ_k (p_k - 1{k is true})²``.

    Args:
        probability (array): Probabilities, of the shape of ``truth`` with a label axis appended.
        truth (array): True labels, integers of any shape.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        float: Brier score, from 0 (best) to 2 (worst).

    Example:
        >>> lp.metrics.brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1])
        0.25
    """
    p, true = _probabilities(probability, truth, ignore_label)
    return float(((p**2).sum(axis=1) - 2 * _of_truth(p, true) + 1).mean())


def expected_calibration_error(
    probability: Any, truth: Any, *, n_bins: int = 15, ignore_label: int | None = None
) -> float:
    """Compute the expected calibration error: the mean gap between confidence and accuracy.

    The confidence of a site is its largest probability.  Sites are grouped by confidence into bins of equal width.  The
    gaps of the bins are averaged with weights proportional to their numbers of sites.

    Args:
        probability (array): Probabilities, of the shape of ``truth`` with a label axis appended.
        truth (array): True labels, integers of any shape.
        n_bins (int, default 15): Number of bins.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        float: Calibration error, from 0 (best) to 1.

    Example:
        >>> lp.metrics.expected_calibration_error([[0.75, 0.25], [0.25, 0.75]], [0, 1])
        0.25
    """
    n_bins = whole_number("n_bins", n_bins, 1)
    p, true = _probabilities(probability, truth, ignore_label)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == true
    # Bins include their upper bound, so that confidence 1 is in the last bin.
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    gap = np.bincount(bins, confidence, n_bins) - np.bincount(bins, right, n_bins)
    return float(np.abs(gap).sum() / len(true))


def risk_coverage(probability: Any, truth: Any, *, ignore_label: int | None = None) -> float:
    """Compute the area under the risk-coverage curve.

    This is the mean, over all k, of the error rate among the k most confident sites.  A confidence that is independent
    of the errors scores the overall error rate on average.  Sites of equal confidence share their mean error.

    Args:
        probability (array): Probabilities, of the shape of ``truth`` with a label axis appended.
        truth (array): True labels, integers of any shape.
        ignore_label (int, default None): Sites whose true label has this value are excluded.

    Returns:
        float: Area under the curve; 0 is best.

    Example:
        >>> lp.metrics.risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        0.25
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
    if true.max() >= p.shape[-1]:
        raise InputError(f"truth contains a label outside 0 to {p.shape[-1] - 1}, expected the labels of probability")
    return p[keep].astype(np.float64), true


def _counted(truth: Array, ignore_label: int | None) -> Array:
    keep = np.ones(truth.shape, bool) if ignore_label is None else truth != ignore_label
    if not keep.any():
        raise InputError("every site of truth is ignored, expected at least one that is not")
    if (least := truth[keep].min()) < 0:
        raise InputError(f"truth contains {least}, expected labels of at least 0, or ignore_label={least}")
    return keep


def _of_truth(p: Array, truth: Array) -> Array:
    return p[np.arange(len(truth)), truth]
