"""Measures of one decoding: the rows and curves of the tables.

The definitions are those of `locpmap.metrics`; this module computes the curves as well.  Images are distributed over
threads in chunks of a fixed size, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.cores import available_cores
from locpmap_paper.data.scenes import VOID

Array = npt.NDArray[Any]

CHUNK = 128 * 28 * 28  # pixels
N_BINS = 15  # bins of the calibration curve, as in metrics.expected_calibration_error
LEAST = 1e-12  # as in metrics.negative_log_likelihood: avoids log(0)
N_POINTS = 40  # points of the risk-coverage curve


@dataclass(frozen=True)
class Measured:
    """The metrics of a row, and the curves if there are probabilities."""

    metrics: dict[str, Any]
    calibration: list[list[float]] | None  # [confidence, accuracy, fraction of sites] per non-empty bin
    risk: list[list[float]] | None  # [coverage, error rate among the most confident sites]


def measure(labels: Array, probability: Array | None, truth: Array, n_labels: int) -> Measured:
    """Compare labels (N, H, W), and probabilities (N, H, W, L) or None, with true labels (N, H, W), -1 for void."""
    per_chunk = max(1, CHUNK // truth[0].size)
    with ThreadPoolExecutor(available_cores()) as threads:
        parts = [slice(lo, lo + per_chunk) for lo in range(0, len(truth), per_chunk)]
        parts = [p for p in parts if (truth[p] != VOID).any()]
        counts = threads.map(lambda p: _overlaps(labels[p], truth[p], n_labels), parts)
        both, either = (np.concatenate(c) for c in zip(*counts, strict=True))  # (N, L)
        summed = np.divide(
            both.sum(axis=0), either.sum(axis=0), out=np.full(n_labels, np.nan), where=either.any(axis=0)
        )
        sizes = np.array([(truth[p] != VOID).sum() for p in parts])
        per_image = np.divide(both, either, out=np.full(both.shape, np.nan), where=either > 0)
        found: dict[str, Any] = {
            "iou": [None if np.isnan(iou) else iou for iou in summed.tolist()],  # NaN: absent label
            "mean_iou": float(np.nanmean(summed)),
            "image_iou": float(np.nanmean(per_image[either.any(axis=1)], axis=1).mean()),  # images with labels
            "accuracy": float(both.sum() / sizes.sum()),
        }
        if probability is None:
            return Measured(found | {"ece": None, "brier": None, "nll": None, "aurc": None}, None, None)
        judged = list(threads.map(lambda p: _judge(probability[p], truth[p]), parts))
    found["nll"], found["brier"] = (float(sum(one[k] for one in judged) / sizes.sum()) for k in (0, 1))
    confidence, wrong = (np.concatenate([one[k] for one in judged]) for k in (2, 3))
    calibration, found["ece"] = calibration_curve(confidence, wrong)
    risk, found["aurc"] = risk_curve(confidence, wrong)
    return Measured(found, calibration, risk)


def calibration_curve(confidence: Array, wrong: Array) -> tuple[list[list[float]], float]:
    """Return confidence, accuracy and fraction of sites per bin, and the expected calibration error."""
    # A bin contains its upper bound, so that a confidence of 1 is in the last bin.
    bins = np.clip(np.ceil(confidence.astype(np.float64) * N_BINS).astype(int) - 1, 0, N_BINS - 1)
    count = np.bincount(bins, minlength=N_BINS)
    sure = np.bincount(bins, confidence, N_BINS)
    right = np.bincount(bins, ~wrong, N_BINS)
    error = float(np.abs(sure - right).sum() / len(wrong))
    some = count > 0
    curve = np.stack([sure[some] / count[some], right[some] / count[some], count[some] / len(wrong)], axis=1)
    return curve.tolist(), error


def risk_curve(confidence: Array, wrong: Array) -> tuple[list[list[float]], float]:
    """Return the risk-coverage curve at up to `N_POINTS` coverages, and the area under it.

    A point is (coverage, error rate among the most confident sites).  Sites with equal confidence contribute their mean
    error.
    """
    # Sorting integers is much faster than argsort.  Positive floats sort like their bit patterns; shifting them left
    # frees the lowest bit for the error flag.
    keys = (confidence.astype(np.float32).view(np.uint32) << 1) | wrong
    keys = np.sort(keys)[::-1]
    ends = np.append(np.flatnonzero(np.diff(keys >> 1)) + 1, len(keys))  # ends of runs of equal confidence
    k = np.arange(1, len(keys) + 1)
    errors = np.interp(k, np.append(0, ends), np.append(0, np.cumsum(keys & 1, dtype=np.int64)[ends - 1]))
    risk = errors / k
    points = np.unique(np.linspace(1, len(keys), N_POINTS).round().astype(int)) - 1
    return np.stack([k[points] / len(keys), risk[points]], axis=1).tolist(), float(risk.mean())


def _overlaps(labels: Array, truth: Array, n_labels: int) -> tuple[Array, Array]:
    """Count, per image and label, the sites with the label in both and in either."""
    flat, true = labels.reshape(len(labels), -1), truth.reshape(len(truth), -1)
    known = true != VOID
    both = np.stack([((flat == k) & (true == k)).sum(axis=1) for k in range(n_labels)], axis=1)
    either = np.stack([(((flat == k) & known) | (true == k)).sum(axis=1) for k in range(n_labels)], axis=1)
    return both, either


def _judge(probability: Array, truth: Array) -> tuple[Any, ...]:
    """Return the sums of -log p and of squared errors, and per site the confidence and whether its label is wrong.

    One pass over rows of labels is several times as fast as separate calls of `locpmap.metrics`.
    """
    known = np.flatnonzero(truth != VOID)
    p = np.ascontiguousarray(np.take(probability.reshape(-1, probability.shape[-1]), known, axis=0).T)
    true = truth.ravel()[known]
    of_truth = p[true, np.arange(len(true))].astype(np.float64)
    confidence = p.max(axis=0)
    best = np.zeros(len(true), np.int64)
    for label in reversed(range(len(p))):  # ties go to the first label, as in argmax
        np.copyto(best, label, where=p[label] == confidence)
    nll = -np.log(np.maximum(of_truth, LEAST)).sum()
    brier = np.einsum("kn,kn->n", p, p, dtype=np.float64).sum() + (1 - 2 * of_truth).sum()
    return float(nll), float(brier), confidence, best != true
