"""Metrics against scikit-learn, against loops, and against small cases computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap import metrics


def random_case(n: int = 500, n_labels: int = 3) -> Any:
    rng = np.random.default_rng(1)
    probability = rng.dirichlet(np.ones(n_labels), n)
    truth = np.array([rng.choice(n_labels, p=p) for p in probability])
    return probability, probability.argmax(axis=1), truth


def test_metrics_match_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    probability, labels, truth = random_case()
    np.testing.assert_allclose(
        metrics.intersection_over_union(labels, truth, 3),
        sklearn.jaccard_score(truth, labels, average=None),
        atol=1e-12,
    )
    assert metrics.accuracy(labels, truth) == pytest.approx(sklearn.accuracy_score(truth, labels), abs=1e-12)
    assert metrics.negative_log_likelihood(probability, truth) == pytest.approx(
        sklearn.log_loss(truth, probability), abs=1e-12
    )
    two, _, coin = random_case(n_labels=2)
    assert metrics.brier_score(two, coin) == pytest.approx(2 * sklearn.brier_score_loss(coin, two[:, 1]), abs=1e-12)


def test_calibration_error_matches_a_loop_over_bins() -> None:
    probability, labels, truth = random_case()
    confidence = probability.max(axis=1)
    total = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            total += inside.mean() * abs((labels == truth)[inside].mean() - confidence[inside].mean())
    assert metrics.expected_calibration_error(probability, truth) == pytest.approx(total, abs=1e-12)


def test_calibration_error_of_a_small_case() -> None:
    # Of four sites with confidence 0.75 three are right; of two with confidence 1 one is right: (4 · 0 + 2 · 0.5) / 6.
    probability = np.array([[0.75, 0.25]] * 4 + [[1.0, 0.0]] * 2)
    truth = np.array([0, 0, 0, 1, 0, 1])
    assert metrics.expected_calibration_error(probability, truth, n_bins=10) == pytest.approx(1 / 6)


def test_brier_score_of_a_small_case() -> None:
    probability = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    assert metrics.brier_score(probability, np.array([0, 0, 2])) == pytest.approx((0 + 0.5 + 2) / 3)


def test_risk_coverage_of_small_cases() -> None:
    probability = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    assert metrics.risk_coverage(probability, np.array([0, 0, 0, 1])) == pytest.approx((0 + 0 + 0 + 1 / 4) / 4)
    assert metrics.risk_coverage(probability, np.array([1, 0, 0, 0])) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    ties = np.array([[0.9, 0.1]] * 4)
    assert metrics.risk_coverage(ties, np.array([1, 0, 0, 0])) == pytest.approx(1 / 4)


def test_the_overlap_of_a_missing_label_is_nan() -> None:
    overlap = metrics.intersection_over_union(np.array([0, 0]), np.array([0, 1]), 3)
    np.testing.assert_array_equal(overlap, [0.5, 0.0, np.nan])


@pytest.mark.parametrize(
    "name", ["negative_log_likelihood", "brier_score", "expected_calibration_error", "risk_coverage"]
)
def test_ignored_sites_have_no_influence(name: str) -> None:
    probability, labels, truth = random_case()
    void = truth.copy()
    void[::3] = 255
    keep = void != 255
    metric = getattr(metrics, name)
    assert metric(probability, void, ignore_label=255) == metric(probability[keep], truth[keep])
    shaped = metric(probability.reshape(20, 25, 3), void.reshape(20, 25), ignore_label=255)
    assert shaped == metric(probability, void, ignore_label=255)
    assert metrics.accuracy(labels, void, ignore_label=255) == (labels == truth)[keep].mean()


BAD: list[tuple[Any, str]] = [
    (lambda p, y: metrics.accuracy(y, y[1:]), "labels has shape (500,), expected (499,)"),
    (lambda p, y: metrics.brier_score(p[1:], y), "probability has shape (499, 3)"),
    (lambda p, y: metrics.brier_score(p, y + 1), "truth contains a label outside 0 to 2"),
    (lambda p, y: metrics.intersection_over_union(y, y, 2), "outside 0 to 1"),
    (lambda p, y: metrics.accuracy(y, np.full_like(y, 9), ignore_label=9), "every site of truth is ignored"),
    (lambda p, y: metrics.accuracy(y, y - 1), "truth contains -1, expected labels of at least 0, or ignore_label=-1"),
    (lambda p, y: metrics.brier_score(p, y - 1), "truth contains -1, expected labels of at least 0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_errors_name_the_bad_input(call: Any, message: str) -> None:
    probability, _, truth = random_case()
    with pytest.raises(lp.InputError) as caught:
        call(probability, truth)
    assert message in str(caught.value)
