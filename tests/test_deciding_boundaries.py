"""Boundary IoU and the best map under samples, compared with a naive implementation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import locpmap as lp
from locpmap.deciding.sampled import band_width, bands, best_map, boundary_iou
from locpmap.errors import InputError


def naive_bands(labels: np.ndarray, distance: int) -> np.ndarray:
    """Return whether another label, which is not -1, is within a chessboard distance of each pixel."""
    found = np.zeros(labels.shape, bool)
    for y, x in np.ndindex(labels.shape):
        near = labels[max(0, y - distance) : y + distance + 1, max(0, x - distance) : x + distance + 1]
        found[y, x] = labels[y, x] >= 0 and bool(((near != labels[y, x]) & (near >= 0)).any())
    return found


def naive_boundary_iou(one: np.ndarray, other: np.ndarray, n_labels: int, distance: int) -> float:
    a, b = naive_bands(one, distance), naive_bands(other, distance)
    values = []
    for k in range(n_labels):
        first, second = a & (one == k), b & (other == k)
        if (first | second).any():
            values.append((first & second).sum() / (first | second).sum())
    return float(np.mean(values)) if values else 1.0


def blobs(seed: int, n_maps: int, n_labels: int = 3) -> np.ndarray:
    """Return random label maps (M, 23, 31) of a few rectangles."""
    rng = np.random.default_rng(seed)
    maps = np.zeros((n_maps, 23, 31), np.int64)
    for one in maps:
        for _ in range(4):
            y, x = rng.integers(0, 20), rng.integers(0, 28)
            one[y : y + rng.integers(3, 12), x : x + rng.integers(3, 12)] = rng.integers(n_labels)
    return maps


@pytest.mark.parametrize("distance", [1, 2, 5])
def test_bands_and_boundary_iou_against_a_naive_implementation(distance: int) -> None:
    maps = blobs(0, 6)
    maps[2:, 10:14, 3:9] = -1
    for one, other in pairwise(maps):
        found, next_one = bands(one, 3, distance), bands(other, 3, distance)
        assert np.array_equal(found, np.where(naive_bands(one, distance), one, 3))
        assert boundary_iou(found, next_one, 3) == pytest.approx(naive_boundary_iou(one, other, 3, distance))


def test_bands_of_tensors_equal_those_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    maps = blobs(1, 3)
    maps[1:, :4] = -1
    for one in maps:
        assert np.array_equal(bands(torch.from_numpy(one), 3, 2).numpy(), bands(one, 3, 2))
    best, value = best_map([torch.from_numpy(maps[0])], torch.from_numpy(maps), 3)
    again, same = best_map([maps[0]], maps, 3)
    assert np.array_equal(best.numpy(), again)
    assert value == pytest.approx(same)


def test_maps_without_boundaries() -> None:
    flat = bands(np.zeros((5, 6), np.int64), 2, 1)
    assert boundary_iou(flat, flat, 2) == 1
    split = np.zeros((5, 6), np.int64)
    split[:, 3:] = 1
    assert boundary_iou(flat, bands(split, 2, 1), 2) == 0


def test_width_of_the_band() -> None:
    assert band_width(480, 640) == 16
    assert band_width(3, 4) == 1
    assert (band_width(40, 50), band_width(60, 60)) == (1, 2)  # 1.28 and 1.70, rounded


def test_best_map_is_the_best_of_all_candidates() -> None:
    """A sample is compared with the other samples only: with itself it always agrees."""
    samples, other = blobs(2, 7), blobs(3, 2)
    distance = band_width(23, 31)
    means = [np.mean([naive_boundary_iou(c, s, 3, distance) for s in samples]) for c in other]
    for n, one in enumerate(samples):
        means.append(np.mean([naive_boundary_iou(one, s, 3, distance) for m, s in enumerate(samples) if m != n]))
    for left_out in (0, 2):  # with the other maps, and among the samples alone
        candidates, values = [*other, *samples][left_out:], means[left_out:]
        best, value = best_map(list(other[left_out:]), samples, 3)
        assert value == pytest.approx(max(values))
        assert np.array_equal(best, candidates[int(np.argmax(values))])


def test_one_sample_is_no_candidate() -> None:
    samples, other = blobs(4, 1), blobs(5, 1)[0]
    assert np.array_equal(best_map([other], samples, 3)[0], other)


def sampled(batch: bool = False, mask: np.ndarray | None = None) -> lp.Result:
    rng = np.random.default_rng(6)
    logits = 1.5 * np.eye(3)[blobs(7, 2)] + rng.normal(size=(2, 23, 31, 3))
    potentials = lp.Potentials.grid(logits if batch else logits[0], 1.0, mask=mask)
    return lp.infer(potentials, lp.LocPMAP(n_samples=8, keep_samples=True), seed=0)


def test_decision_is_at_least_as_good_as_the_labels() -> None:
    result = sampled()
    decision = result.decide("boundary_iou")
    distance = band_width(23, 31)

    def mean(labels: np.ndarray) -> float:
        return float(np.mean([naive_boundary_iou(labels, s.astype(int), 3, distance) for s in result.samples]))

    assert decision.expected >= max(mean(result.labels), mean(result.probability.argmax(-1))) - 1e-12
    assert decision.labels.shape == (23, 31)


def test_batch_equals_single_images_and_masked_pixels_stay_masked() -> None:
    batch = sampled(batch=True).decide("boundary_iou")
    assert batch.expected.shape == (2,)
    assert np.array_equal(batch.labels[0], sampled().decide("boundary_iou").labels)
    mask = np.zeros((23, 31), bool)
    mask[4:9, 4:9] = True
    masked = sampled(mask=mask).decide("boundary_iou", abstain=0.3)
    assert (masked.labels[mask] == -1).all()
    assert masked.risk <= 0.3 + 1e-9


def test_graphs_have_no_boundaries() -> None:
    graph = lp.Potentials.graph(np.zeros((4, 2)), [[0, 1]], 1.0)
    with pytest.raises(InputError, match="expected images"):
        lp.infer(graph, lp.LocPMAP(n_samples=3, keep_samples=True)).decide("boundary_iou")
