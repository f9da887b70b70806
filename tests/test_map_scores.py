"""Scores of sampled maps against loops, closed forms and known cases."""

import numpy as np
import pytest
from benchmarks.map_scores import components, energy_score, jaccard_distance, map_score, perimeter, window_areas


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(0)


def test_window_areas_match_loops(rng: np.random.Generator) -> None:
    maps = rng.integers(-1, 3, (2, 9, 11))
    found = window_areas(maps, 3, 4)
    assert found.shape == (2, 3, 2, 2)
    for m, k, i, j in np.ndindex(found.shape):
        window = maps[m, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
        assert found[m, k, i, j] == pytest.approx((window == k).sum() / (window >= 0).sum())
    assert np.isnan(window_areas(np.full((1, 4, 4), -1), 2, 4)).all()


def test_components_and_perimeter_of_known_maps() -> None:
    labels = np.zeros((10, 12), int)
    labels[2:6, 2:6] = 1  # 16 pixels
    labels[8, 8:10] = 1  # too small to count
    np.testing.assert_array_equal(components(labels, 2), [1, 1])
    np.testing.assert_array_equal(perimeter(labels, 2), [16 + 6, 16 + 6])
    labels[:, 11] = -1
    np.testing.assert_array_equal(perimeter(labels, 2), [16 + 6, 16 + 6])


def test_jaccard_distance_is_one_minus_mean_iou() -> None:
    a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert jaccard_distance(a, b, 5) == pytest.approx(1 - (1 / 2 + 2 / 3) / 2)
    assert jaccard_distance(a, a, 2) == 0


def test_energy_score_prefers_the_true_distribution(rng: np.random.Generator) -> None:
    """Use maps that are wholly 0 or 1: the energy score is proper, so the true probability has the lowest mean."""

    def mean(p: float) -> float:
        scores = []
        for _ in range(400):
            truth = np.full((3, 3), int(rng.random() < 0.3))
            samples = (rng.random(40) < p)[:, None, None] * np.ones((1, 3, 3), int)
            scores.append(energy_score(samples, truth, 2))
        return float(np.mean(scores))

    # E = p (1 - q) + q (1 - p) - p (1 - p) with q = 0.3 is smallest at p = q; neighbours differ by 0.09, noise is 0.02.
    assert mean(0.3) < min(mean(0.0), mean(0.6))


def test_coverage_of_exchangeable_maps_is_the_level(rng: np.random.Generator) -> None:
    """Truth and samples have the same distribution, so 90 % intervals contain the truth in about 90 % of the images."""
    covered = []
    for _ in range(300):
        fractions = rng.beta(2, 2, 41)
        maps = (rng.random((41, 16, 16)) < fractions[:, None, None]).astype(int)
        covered.append(map_score(maps[1:], maps[0], 2).coverage["area whole"])
    # Quantiles of 40 samples cover slightly less than 0.9: the expected coverage is about 0.86.
    assert abs(np.mean(covered) - 0.87) < 4 * np.sqrt(0.87 * 0.13 / 300)
