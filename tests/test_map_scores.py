"""Scores of sampled maps against loops, closed forms and known cases."""

import numpy as np
import pytest
from scipy import ndimage

from locpmap.learning.proper_scores import Truth, crps, energy_score, jaccard_distance, outside
from locpmap.measuring.quantities import components
from locpmap.refining.map_scores import LEAST_COMPONENT, covered, in_central_ranks, map_score, mean_scores
from locpmap.refining.scoring import score


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(0)


def test_window_areas_match_loops(rng: np.random.Generator) -> None:
    """Compare windows of 8 pixels of a 19 × 26 map with void pixels, two of the six windows being void."""
    truth = rng.integers(-1, 3, (19, 26))
    truth[:8, 8:24] = -1
    maps, known = rng.integers(0, 3, (2, 19, 26)), Truth.of(truth, 3)
    found = known.areas(known.inside(maps), 8)
    expected = [
        [
            [(part == k).sum() / (inside >= 0).sum() for k in range(3)]
            for i, j in ((0, 0), (8, 0), (8, 8), (8, 16))
            for inside in [truth[i : i + 8, j : j + 8]]
            for part in [np.where(inside < 0, -1, one[i : i + 8, j : j + 8])]
        ]
        for one in maps
    ]
    np.testing.assert_allclose(found, expected)
    assert list(known.windows) == [8, 0]
    whole = known.areas(known.inside(maps), 0)[:, 0]
    np.testing.assert_allclose(whole, [[(one[truth >= 0] == k).mean() for k in range(3)] for one in maps])


def test_scores_are_those_of_their_definitions(rng: np.random.Generator) -> None:
    truth = rng.integers(-1, 3, (16, 16))
    samples, known = rng.integers(0, 3, (6, 16, 16)), Truth.of(truth, 3)
    found, beyond = known.scores(samples)
    assert beyond.keys() == found.keys() - {"energy"}
    assert [name for name, value in found.items() if not np.isnan(value)] == [
        "area 8",
        "area whole",
        "perimeter",
        "energy",
    ]
    areas, true = known.areas(known.inside(samples), 8), known.areas(known.labels[None], 8)[0]
    assert found["area 8"] == pytest.approx(crps(areas, true).mean())
    maps = samples[:, truth >= 0]
    to_truth = np.mean([jaccard_distance(one, truth[truth >= 0], 3) for one in maps])
    between = np.mean([jaccard_distance(maps[m], maps[(m + 1) % 6], 3) for m in range(6)])
    assert found["energy"] == pytest.approx(to_truth - between / 2)


def test_frequency_outside_the_range_is_exact_for_exchangeable_values(rng: np.random.Generator) -> None:
    """Use areas with many ties: of 6 values of one distribution, one is the lowest or highest with probability 2/6."""
    values = rng.integers(0, 3, (6, 40_000)) / 2
    found = outside(values[1:], values[0], np.full(40_000, True))
    assert found == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / 40_000))
    assert np.isnan(outside(values[1:], values[0], np.full(40_000, False)))


def test_components_match_one_labelling_per_label(rng: np.random.Generator) -> None:
    labels = rng.integers(-1, 2, (40, 50)).repeat(2, axis=0).repeat(2, axis=1)
    expected = [(np.bincount(ndimage.label(labels == k)[0].ravel())[1:] >= 12).sum() for k in range(3)]
    np.testing.assert_array_equal(components(labels, 3, LEAST_COMPONENT), expected)


def test_components_and_perimeter_of_known_maps() -> None:
    labels = np.zeros((10, 12), int)
    labels[2:6, 2:6] = 1  # 16 pixels
    labels[8, 8:10] = 1  # too small to count
    np.testing.assert_array_equal(components(labels, 2, LEAST_COMPONENT), [1, 1])
    np.testing.assert_array_equal(Truth.of(labels, 2).perimeter(labels), [16 + 6, 16 + 6])
    void = labels.copy()
    void[:, 5] = -1  # a column of the square: 4 edges to the right, and two each above and below it
    np.testing.assert_array_equal(Truth.of(void, 2).perimeter(labels), [10 + 6, 10 + 6])


def test_jaccard_distance_is_one_minus_mean_iou() -> None:
    a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert jaccard_distance(a, b, 5) == pytest.approx(1 - (1 / 2 + 2 / 3) / 2)
    assert jaccard_distance(a, a, 2) == 0


def test_energy_score_prefers_the_true_distribution(rng: np.random.Generator) -> None:
    """Use maps that are wholly 0 or 1: the energy score is proper, so the true probability has the lowest mean."""

    def mean(p: float) -> float:
        scores = []
        for _ in range(400):
            truth = np.full(9, int(rng.random() < 0.3))
            samples = (rng.random(40) < p)[:, None] * np.ones((1, 9), int)
            scores.append(energy_score(samples, truth, 2))
        return float(np.mean(scores))

    # E = p (1 - q) + q (1 - p) - p (1 - p) with q = 0.3 is smallest at p = q; neighbours differ by 0.09, noise is 0.02.
    assert mean(0.3) < min(mean(0.0), mean(0.6))


def test_coverage_of_exchangeable_maps_is_the_level(rng: np.random.Generator) -> None:
    """True maps and samples have one distribution, so 90 % intervals contain about 90 % of the true values."""
    covered = []
    for _ in range(300):
        fractions = rng.beta(2, 2, 20)
        maps = (rng.random((20, 16, 16)) < fractions[:, None, None]).astype(int)
        covered.append(map_score(maps[1:], maps[0], 2).coverage["area whole"])
    # 19 samples cover with probability 0.9, and with more where areas are equal.
    assert abs(np.mean(covered) - 0.9) < 4 * np.sqrt(0.09 / 300)


def test_means_leave_out_images_without_a_value(rng: np.random.Generator) -> None:
    """Combine an image of 8 × 8 pixels, which has no window of 32 pixels, with a larger one."""
    maps = [rng.integers(0, 2, (20, size, size)) for size in (8, 32)]
    small, large = (map_score(some[1:], some[0], 2) for some in maps)
    found = mean_scores([small, large])
    assert "area 32" not in small.crps
    assert found["crps"]["area 32"] == large.crps["area 32"]
    assert found["crps"]["area whole"] == pytest.approx((small.crps["area whole"] + large.crps["area whole"]) / 2)


def test_maps_of_one_label_have_no_score_of_the_perimeter() -> None:
    """Nothing is scored where no outline occurs; warnings are errors here."""
    found = map_score(np.zeros((19, 8, 8), int), np.zeros((8, 8), int), 2)
    assert np.isnan(found.crps["perimeter"])
    assert np.isnan(found.coverage["perimeter"])
    assert found.crps["components"] == 0


def test_void_pixels_are_ignored_for_every_type_of_labels(rng: np.random.Generator) -> None:
    truth, samples = rng.integers(0, 3, (16, 16)), rng.integers(0, 3, (19, 16, 16))
    truth[:5, :5] = -1  # as large as a component that counts
    expected = map_score(samples, truth, 3)
    for dtype in (np.uint8, np.int16):
        assert map_score(samples.astype(dtype), truth, 3) == expected


def test_ranks_are_central_in_nine_of_ten_cases_also_with_ties() -> None:
    """Draw true values and samples from one distribution on few values, where closed intervals cover too often."""
    rng = np.random.default_rng(4)
    values = rng.binomial(2, 0.4, size=(40, 20_000)).astype(float)
    samples, true, all_of_them = values[1:], values[0], np.ones(20_000, bool)
    assert abs(in_central_ranks(samples, true, all_of_them) - 0.9) < 4 * np.sqrt(0.09 / 20_000)
    assert covered(samples, true, all_of_them) > 0.95
    continuous = rng.normal(size=(40, 500))
    given = (continuous[1:], continuous[0], np.ones(500, bool))
    assert in_central_ranks(*given) == pytest.approx(covered(*given), abs=1e-12)


def test_labels_change_the_iou_only() -> None:
    rng = np.random.default_rng(5)
    probability, truth = rng.dirichlet(np.ones(3), size=(9, 8)), rng.integers(0, 3, (9, 8))
    usual, decoded = score(probability, truth), score(probability, truth, truth)
    assert (decoded.ece, decoded.nll) == (usual.ece, usual.nll)
    assert usual.iou < decoded.iou == 1
