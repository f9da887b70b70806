"""The Potts climb as the reference makes it: noise, starts and labels, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import place

from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM
from locpmap.kernels.reference import climb_potts as reference_potts
from locpmap.kernels.reference import noise
from locpmap.kernels.triton import climb_potts as triton_potts
from locpmap.kernels.triton.climb_potts import Draw, climb_potts, climb_with_scores

KEY = (12345, 2**32 - 3)
R = 9


@pytest.mark.parametrize(("n_labels", "start"), [(2, RANDOM), (2, PERTURBED), (3, GIVEN), (5, RANDOM)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 7)], ids=str)
def test_climbs(shape: tuple[int, int], n_labels: int, start: int) -> None:
    compare(2, shape, n_labels, start, max_sweeps=(100, 2, 1)[(shape[1] + n_labels) % 3])


@pytest.mark.slow
@pytest.mark.parametrize("n_labels", [21, 130])
def test_many_labels(n_labels: int) -> None:
    compare(1, (1, 2), n_labels, PERTURBED)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_images_of_several_tiles_and_teams(n_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_potts, "TILES_EACH", 1)
    compare(2, (5, 33), n_labels, RANDOM)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_negative_weights_and_forbidden_labels(n_labels: int) -> None:
    compare(2, (4, 5), n_labels, RANDOM, forbid=0.3, least=-1.0 if n_labels == 2 else 0.0)


def compare(
    n_images: int,
    shape: tuple[int, int],
    n_labels: int,
    start: int,
    max_sweeps: int = 100,
    forbid: float = 0.0,
    least: float = 0.0,
) -> None:
    """Labels and sweeps are the reference's, in a window of a larger grid and with samples from the middle."""
    rng = np.random.default_rng(n_labels)
    height, width = shape
    n_sites = height * width
    unary = 2 * rng.normal(size=(n_images, n_sites, n_labels))
    unary[..., 1:][rng.random((n_images, n_sites, n_labels - 1)) < forbid] = -np.inf
    right = rng.uniform(least, 1, (n_images, height, width - 1))
    down = rng.uniform(least, 1, (1, height - 1, width))
    given = rng.integers(0, n_labels, (n_images, n_sites)).astype(np.uint8)
    how, window = (0.5, *KEY, 3, 8, start), (3, 2, 2**33, max_sweeps)
    labels = np.zeros((n_images, n_sites, R), np.uint8 if n_labels <= 127 else np.int16)
    sweeps = reference_potts.climb_potts(unary, right, down, *how, given, *window, labels)
    found = place(np.zeros_like(labels))
    model = (place(unary), place(right), place(down))
    made = climb_potts(*model, *how, place(given), *window, found)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(made.cpu().numpy(), sweeps)


@pytest.mark.parametrize(("n_labels", "dtype"), [(2, np.float32), (2, np.float64), (3, np.float64), (21, np.float32)])
def test_noise(n_labels: int, dtype: Any) -> None:
    rng = np.random.default_rng(n_labels)
    height, width, amount, window = 3, 5, 0.5, (3, 2, 2**33)
    unary = (2 * rng.normal(size=(1, 15, n_labels))).astype(dtype)
    unary[..., 1:][rng.random((1, 15, n_labels - 1)) < 0.2] = -np.inf
    unary[0, 4, -1] = -70.0  # e^-140 as likely as the others: beyond single precision
    weights = place(np.zeros((1, height, width - 1), dtype)), place(np.zeros((1, height - 1, width), dtype))
    labels = place(np.zeros((1, 15, R), np.uint8))
    how = (amount, Draw(*KEY, 4, 120), PERTURBED, labels[:, :, 0], window, 1, labels)
    found = climb_with_scores(place(unary), *weights, *how)[1].cpu().numpy()  # type: ignore[arg-type]
    rows, columns = np.divmod(np.arange(15), width)
    sites = (window[0] + rows) * window[2] + window[1] + columns
    per_row, pack = (width + 1) // 2, 8 if n_labels == 2 else 4
    for s in range(R):
        scores = noise.perturbed_lazy(unary[0].astype(np.float64), amount, KEY, 4, 120 + s, sites)
        scores = scores[:, 1:] - scores[:, :1] if n_labels == 2 else scores
        for i in range(15):
            colour = (rows[i] + columns[i] + window[0] + window[1]) % 2
            word, field = divmod(s, pack)
            lane = (rows[i] * per_row + columns[i] // 2) * -(-R // pack) + word
            # Noise and unaries are of order 10; logarithms of logarithms lose a few more digits.
            tolerance = 1e-12 if dtype == np.float64 else 2e-5
            np.testing.assert_allclose(found[0, colour, :, field, lane], scores[i], rtol=1e-6, atol=tolerance)
