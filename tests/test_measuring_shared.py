"""Errors that all sites share: their distribution in closed form, and what they leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.measuring import shared as module

SITES, SAMPLES = (20, 30), 400


def flat(n_labels: int = 2) -> lp.Potentials:
    """Sites that know nothing and are not coupled."""
    return lp.Potentials.grid(np.zeros((*SITES, n_labels)), 0.0)


@pytest.mark.parametrize("shared", [0.5, 2.0])
def test_moments_of_the_area_of_sites_that_are_not_coupled(shared: float) -> None:
    """Given the offsets, labels are independent: P = sigmoid(N(0, 2 shared²)), the area is S·E P ± its law's spread."""
    n = int(np.prod(SITES))
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    p = 1 / (1 + np.exp(-np.sqrt(2) * shared * points))
    variance = n**2 * (weights @ p**2 - 0.25) + n * (weights @ (p * (1 - p)))
    fourth = weights @ (n * (p - 0.5)) ** 4
    area = lp.measure(flat(), "area", n_samples=SAMPLES, seed=1, shared=shared)
    assert abs(area.mean[1] - n / 2) < 4 * np.sqrt(variance / SAMPLES)
    error = np.sqrt((fourth - variance**2) / SAMPLES)  # of the variance; that of single sites is small beside it
    assert abs(area.std[1] ** 2 - variance) < 4 * error


def test_offsets_are_of_labels_and_new_in_every_sample() -> None:
    area = lp.measure(flat(3), "area", n_samples=SAMPLES, seed=0, shared=3.0).values
    correlation = np.corrcoef(area.T)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(correlation, -0.5, atol=4 * 0.75 / np.sqrt(SAMPLES))  # what one gains, the others lose
    lags = np.corrcoef(area[:-1, 0], area[1:, 0])[0, 1]
    assert abs(lags) < 4 / np.sqrt(SAMPLES)


def test_without_it_samples_are_those_of_infer() -> None:
    potentials = flat()
    plain = lp.measure(potentials, "area", n_samples=20, seed=3).values
    np.testing.assert_array_equal(lp.measure(potentials, "area", n_samples=20, seed=3, shared=0.0).values, plain)


def test_neither_rounds_nor_the_batch_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(2, 6, 7, 3))
    both = lp.measure(lp.Potentials.grid(unary, 0.7), "perimeter", n_samples=11, seed=5, shared=1.0).values
    second = lp.Potentials.grid(unary[1], 0.7)
    np.testing.assert_array_equal(
        lp.measure(second, "perimeter", n_samples=11, seed=5, shared=1.0, first_image=1).values, both[:, 1]
    )
    monkeypatch.setattr(module, "MOST", 4 * unary[0].size)  # four samples at a time
    np.testing.assert_array_equal(
        lp.measure(second, "perimeter", n_samples=11, seed=5, shared=1.0, first_image=1).values, both[:, 1]
    )


def test_masks_starts_and_forbidden_labels() -> None:
    unary = np.zeros((5, 6, 3))
    unary[..., 2] = -np.inf
    mask = np.zeros((5, 6), bool)
    mask[0] = True
    potentials = lp.Potentials.grid(unary, 0.3, mask=mask)
    for start in ("random", np.zeros((5, 6), int)):
        area = lp.measure(potentials, "area", n_samples=9, shared=2.0, start=start).values
        assert (area.sum(axis=1) == 24).all()
        assert (area[:, 2] == 0).all()


@pytest.mark.parametrize("shared", [-1.0, np.nan, np.inf, "much", None])
def test_odd_numbers_are_refused(shared: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="shared is"):
        lp.measure(flat(), "area", n_samples=2, shared=shared)


def test_a_result_has_drawn_its_samples() -> None:
    result = lp.infer(flat(), "locpmap", n_samples=3, keep_samples=True)
    with pytest.raises(lp.InputError, match="shared cannot be given"):
        lp.measure(result, "area", shared=1.0)
