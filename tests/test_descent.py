"""Losses and decisions of the descent on proper scores, against direct computations."""

import numpy as np
import pytest

from locpmap.learning.descent import CALIBRATION, N_SAMPLES, SHRINKAGE, is_better, losses, means_without_each


def test_loss_is_its_formula() -> None:
    rng = np.random.default_rng(0)
    scores, others = rng.uniform(1, 2, (2, 6, 3))
    beyond, steps = rng.random((6, 2)), np.array([0.5, -1.0])
    found = losses(scores, beyond, means_without_each(others), steps)
    for row in range(7):
        kept = [n for n in range(6) if n != row - 1]
        ratio = np.log(scores[kept].mean(axis=0) / others[kept].mean(axis=0)).mean()
        excess = ((beyond[kept].mean(axis=0) - 2 / (N_SAMPLES + 1)) ** 2).mean()
        assert found[row] == pytest.approx(ratio + CALIBRATION * excess + SHRINKAGE / 6 * 1.25)


def test_scores_that_an_image_lacks_do_not_count() -> None:
    found = means_without_each(np.array([[1.0, np.nan], [3.0, 4.0]]))
    np.testing.assert_array_equal(found, [[2.0, 4.0], [3.0, 4.0], [1.0, np.nan]])


@pytest.mark.parametrize(("gain", "better"), [(1.05, True), (0.95, False)])
def test_improvement_is_compared_with_the_standard_error_of_a_mean(gain: float, better: bool) -> None:
    """The jackknife of a mean equals its standard error, the deviation divided by the square root of n."""
    values = np.random.default_rng(1).normal(size=20)
    values += gain * values.std(ddof=1) / np.sqrt(20) - values.mean()
    gains = means_without_each(values[:, None])[:, 0]
    assert is_better(-gains, np.zeros(21)) == better
