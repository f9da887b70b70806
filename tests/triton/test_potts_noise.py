"""The noise of the Potts climb, and who wins by it, as the reference's scores say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import place

from locpmap.kernels.perturbation import GIVEN, PERTURBED
from locpmap.kernels.reference import noise
from locpmap.kernels.triton.climb_potts import climb_potts, climb_with_scores
from locpmap.kernels.triton.potts_first import Draw

KEY = (12345, 2**32 - 3)
R = 9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_of_two_labels(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    height, width, amount, window = 3, 5, 0.5, (3, 2, 2**33)
    unary = (2 * rng.normal(size=(1, 15, 2))).astype(dtype)
    unary[..., 1:][rng.random((1, 15, 1)) < 0.2] = -np.inf
    weights = place(np.zeros((1, height, width - 1), dtype)), place(np.zeros((1, height - 1, width), dtype))
    labels = place(np.zeros((1, 15, R), np.uint8))
    how = (amount, Draw(*KEY, 4, 120), PERTURBED, labels[:, :, 0], window, 1, labels)
    found = climb_with_scores(place(unary), *weights, *how)[1].cpu().numpy().reshape(2, 8, -1)  # type: ignore[arg-type]
    rows, columns, sites = sites_of(height, width, window)
    for s in range(R):
        scores = noise.perturbed_lazy(unary[0].astype(np.float64), amount, KEY, 4, 120 + s, sites)
        colour = (rows + columns + window[0] + window[1]) % 2
        lane = (rows * ((width + 1) // 2) + columns // 2) * -(-R // 8) + s // 8
        # Noise and unaries are of order 10; logarithms of logarithms lose a few more digits.
        tolerance = 1e-12 if dtype == np.float64 else 2e-5
        expected = scores[:, 1] - scores[:, 0]
        np.testing.assert_allclose(found[colour, s % 8, lane], expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize(("n_labels", "dtype"), [(3, np.float64), (7, np.float32), (21, np.float32)])
def test_who_wins_a_site(n_labels: int, dtype: Any) -> None:
    """One visit to the middle of a cross: the reference's scores say who wins, but where two are within rounding."""
    rng = np.random.default_rng(n_labels)
    amount, window, n_samples = 0.5, (3, 3, 2**33), 64  # the middle is of the first colour
    unary = (3 * rng.normal(size=(20, 9, n_labels))).astype(dtype)
    unary[..., 1:][rng.random((20, 9, n_labels - 1)) < 0.2] = -np.inf
    unary[:10, 4, -1] = unary[:10, 4].max(axis=1) - 50.0  # e^-100 as likely as the others: beyond single precision
    given = rng.integers(0, n_labels, (20, 9)).astype(np.uint8)
    given[:10, [1, 3]] = n_labels - 1
    strength = np.where(np.arange(20) < 10, 30.0, 3.0).astype(dtype)[:, None, None]
    right = (strength * rng.random((20, 3, 2))).astype(dtype)
    down = (strength * rng.random((20, 2, 3))).astype(dtype)
    labels = place(np.zeros((20, 9, n_samples), np.uint8))
    how = (amount, *KEY, 4, 120, GIVEN, place(given), *window, 1, labels)
    climb_potts(place(unary), place(right), place(down), *how)
    _, _, sites = sites_of(3, 3, window)
    n_close = 0
    for n in range(20):
        near = given[n, [3, 5, 1, 7]], (right[n, 1, 0], right[n, 1, 1], down[n, 0, 1], down[n, 1, 1])
        support = np.zeros(n_labels)
        np.add.at(support, near[0], np.array(near[1], np.float64))
        for s in range(n_samples):
            scores = noise.perturbed_lazy(unary[n, 4:5].astype(np.float64), amount, KEY, 4 + n, 120 + s, sites[4:5])[0]
            scores = scores + support
            second, top = np.sort(scores)[-2:]
            close = top - second < (1e-10 if dtype == np.float64 else 1e-4)
            n_close += close
            assert close or int(labels[n, 4, s]) == scores.argmax()
    assert n_close <= 2


def sites_of(height: int, width: int, window: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """Rows, columns and numbers in the whole image of a window's sites."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return rows, columns, (window[0] + rows) * window[2] + window[1] + columns
