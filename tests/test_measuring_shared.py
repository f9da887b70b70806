"""Measuring with a shared error and presence: closed forms, noise keys, masks and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import locpmap as lp

SITES, SAMPLES = (20, 30), 400
NEGLIGIBLE = 1e-9  # a negligible coupling


def flat(n_labels: int = 2, coupling: float = 0.0) -> lp.Potentials:
    """Return potentials with zero unaries."""
    return lp.Potentials.grid(np.zeros((*SITES, n_labels)), coupling)


@pytest.mark.parametrize("coupling", [0.0, NEGLIGIBLE])
@pytest.mark.parametrize("shared", [0.5, 2.0])
def test_area_moments_of_uncoupled_sites_match_closed_forms(shared: float, coupling: float) -> None:
    """Integrate over the offsets: given them, each site has label 1 with p = sigmoid(N(0, 2 shared²))."""
    n = int(np.prod(SITES))
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    p = 1 / (1 + np.exp(-np.sqrt(2) * shared * points))
    variance = n**2 * (weights @ p**2 - 0.25) + n * (weights @ (p * (1 - p)))
    fourth = weights @ (n * (p - 0.5)) ** 4
    area = lp.measure(
        flat(2, coupling), "area", lp.LocPMAP(n_samples=SAMPLES, fields=lp.ErrorFields(shared=shared)), seed=1
    )
    assert abs(area.mean[1] - n / 2) < 4 * np.sqrt(variance / SAMPLES)
    error = np.sqrt((fourth - variance**2) / SAMPLES)  # of the variance; the part from single sites is negligible
    assert abs(area.std[1] ** 2 - variance) < 4 * error


@pytest.mark.parametrize("coupling", [0.0, NEGLIGIBLE])
def test_offsets_are_independent_between_labels_and_samples(coupling: float) -> None:
    area = lp.measure(
        flat(3, coupling), "area", lp.LocPMAP(n_samples=SAMPLES, fields=lp.ErrorFields(shared=3.0)), seed=0
    ).values
    correlation = np.corrcoef(area.T)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(correlation, -0.5, atol=4 * 0.75 / np.sqrt(SAMPLES))  # the areas sum to a constant
    lags = np.corrcoef(area[:-1, 0], area[1:, 0])[0, 1]
    assert abs(lags) < 4 / np.sqrt(SAMPLES)


def test_zero_shared_error_gives_plain_samples() -> None:
    potentials = flat()
    plain = lp.measure(potentials, "area", lp.LocPMAP(n_samples=20), seed=3).values
    np.testing.assert_array_equal(
        lp.measure(potentials, "area", lp.LocPMAP(n_samples=20, fields=lp.ErrorFields(shared=0.0)), seed=3).values,
        plain,
    )


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_labels_of_uncoupled_sites_follow_the_softmax(temperature: float) -> None:
    """Compare z-scores of the counts of labels, and of label pairs at neighbours, for a negligible shared error."""
    rng, n = np.random.default_rng(0), 4000
    unary = 2 * rng.normal(size=(5, 6, 4))
    unary[0, :, 1] = unary[2, :, 3] = -np.inf
    maps: list[np.ndarray] = []
    potentials = lp.Potentials.grid(unary, 0.0)

    def record(labels: np.ndarray) -> int:
        maps.append(labels)
        return 0

    lp.measure(potentials, record, lp.LocPMAP(n_samples=n, temperature=temperature, fields=lp.ErrorFields(shared=1e-9)))
    p = np.exp(unary / temperature) / np.exp(unary / temperature).sum(-1, keepdims=True)
    drawn = np.eye(4)[np.array(maps)]  # (n, H, W, L)
    pairs = np.einsum("mhwk,mhwl->hwkl", drawn[:, :, 1:], drawn[:, :, :-1])
    expected = np.einsum("hwk,hwl->hwkl", p[:, 1:], p[:, :-1])
    found = np.concatenate([drawn.sum(0).ravel(), pairs.ravel()])
    q = np.concatenate([p.ravel(), expected.ravel()])
    assert (found[q == 0] == 0).all()
    some = (n * q > 5) & (q < 1)
    z = (found[some] - n * q[some]) / np.sqrt(n * q[some] * (1 - q[some]))
    assert np.abs(z).max() < 5.5
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / some.sum()) * 2  # counts of neighbours are correlated


def test_unknown_device_is_refused_also_for_uncoupled_sites() -> None:
    with pytest.raises((lp.InputError, lp.BackendError), match="tpu"):
        lp.measure(flat(), "area", lp.LocPMAP(n_samples=2, fields=lp.ErrorFields(shared=1.0)), device="tpu")


@pytest.mark.parametrize("coupling", [0.0, 0.5])
def test_noise_is_a_function_of_seed_image_sample_and_label(coupling: float) -> None:
    """Check that a shorter run is a prefix of a longer one, and that seeds and images differ."""
    potentials = lp.Potentials.grid(np.random.default_rng(1).normal(size=(9, 11, 5)), coupling)

    def areas(n_samples: int, **keys: Any) -> np.ndarray:
        fields = lp.ErrorFields(shared=0.7, presence=[1.0, 0.5, 1.0, 0.5, 1.0])
        return lp.measure(potentials, "area", lp.LocPMAP(n_samples=n_samples, fields=fields), **keys).values

    long = areas(21)
    for n_samples in (1, 6, 20):
        np.testing.assert_array_equal(areas(n_samples), long[:n_samples])
    for other in ({"seed": 1}, {"seed": 2**40}, {"first_image": 1}):
        assert (areas(21, **other) != long).any(axis=1).mean() > 0.5


# presence


@pytest.mark.parametrize("coupling", [0.0, NEGLIGIBLE])
def test_label_is_excluded_with_its_probability_of_absence(coupling: float) -> None:
    """Check the area in the other samples, too: weights ``1/π : 1`` give a fraction of ``1 / (1 + π)``."""
    n, presence = int(np.prod(SITES)), 0.25
    area = lp.measure(
        flat(2, coupling),
        "area",
        lp.LocPMAP(n_samples=SAMPLES, fields=lp.ErrorFields(presence=[1.0, presence])),
        seed=4,
    ).values[:, 1]
    present = area > 0
    assert abs(present.sum() - SAMPLES * presence) < 4 * np.sqrt(SAMPLES * presence * (1 - presence))
    p = 1 / (1 + presence)
    z = (area[present] - n * p) / np.sqrt(n * p * (1 - p))
    assert abs(z.mean()) < 4 / np.sqrt(present.sum())
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / present.sum())


def test_labels_are_excluded_independently() -> None:
    area = lp.measure(
        flat(3),
        "area",
        lp.LocPMAP(n_samples=SAMPLES, fields=lp.ErrorFields(presence=[0.5, 1.0, 0.5], shared=1.0)),
        seed=1,
    ).values
    assert (area[:, 1] > 0).all()
    both = ((area[:, 0] > 0) & (area[:, 2] > 0)).mean()
    assert abs(both - 0.25) < 4 * np.sqrt(0.25 * 0.75 / SAMPLES)
    assert (area.sum(axis=1) == np.prod(SITES)).all()


@pytest.mark.parametrize("coupling", [0.0, 0.3])
def test_presence_with_masks_and_batches(coupling: float) -> None:
    """Exclude labels at masked sites, and use a different presence for each image."""
    mask = np.zeros((5, 6), bool)
    mask[0] = True
    potentials = lp.Potentials.grid(np.zeros((2, 5, 6, 3)), coupling, mask=mask)
    presence = np.array([[1e-6, 1.0, 1e-6], [1.0, 1e-6, 1.0]])
    area = lp.measure(potentials, "area", lp.LocPMAP(n_samples=9, fields=lp.ErrorFields(presence=presence))).values
    np.testing.assert_array_equal(area[:, 0], np.broadcast_to([0, 24, 0], (9, 3)))
    assert (area[:, 1, 1] == 0).all()
    assert (area.sum(axis=-1) == 24).all()
    two = lp.Potentials.grid(np.zeros((5, 6, 2)), coupling, mask=mask)
    np.testing.assert_array_equal(
        lp.measure(two, "area", lp.LocPMAP(n_samples=9, fields=lp.ErrorFields(presence=[1e-6, 1.0]))).values[:, 1], 24
    )


@pytest.mark.parametrize(
    ("presence", "message"),
    [
        ([1.0], "presence has shape"),
        ([0.5, 0.5], "below 1 for all labels"),
        ([1.0, 0.0], "a number outside 1e-06 to 1"),
        ([1.0, 1.5], "a number outside"),
        ([1.0, np.nan], "a number outside"),
        ("sure", "presence is a str"),
    ],
)
def test_invalid_presence_is_refused(presence: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        lp.measure(flat(), "area", lp.LocPMAP(n_samples=2, fields=lp.ErrorFields(presence=presence)))


def test_presence_with_forbidden_labels_is_refused() -> None:
    unary = np.zeros((2, 2, 2))
    unary[0, 0, 0] = -np.inf
    with pytest.raises(lp.InputError, match="with scores of -inf"):
        lp.measure(
            lp.Potentials.grid(unary, 0.0), "area", lp.LocPMAP(n_samples=2, fields=lp.ErrorFields(presence=[1.0, 0.5]))
        )


@pytest.mark.parametrize("coupling", [0.0, 0.7])
def test_values_do_not_depend_on_the_batch(coupling: float) -> None:
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(2, 6, 7, 3))
    both = lp.measure(
        lp.Potentials.grid(unary, coupling),
        "perimeter",
        lp.LocPMAP(n_samples=11, fields=lp.ErrorFields(shared=1.0)),
        seed=5,
    ).values
    second = lp.Potentials.grid(unary[1], coupling)
    np.testing.assert_array_equal(
        lp.measure(
            second, "perimeter", lp.LocPMAP(n_samples=11, fields=lp.ErrorFields(shared=1.0)), seed=5, first_image=1
        ).values,
        both[:, 1],
    )


@pytest.mark.parametrize("coupling", [0.0, 0.3])
@pytest.mark.parametrize("shared", [2.0, 200.0])  # exp(200) overflows single precision
def test_shared_error_with_masks_starts_and_forbidden_labels(coupling: float, shared: float) -> None:
    unary = np.zeros((5, 6, 3))
    unary[..., 2] = -np.inf
    mask = np.zeros((5, 6), bool)
    mask[0] = True
    potentials = lp.Potentials.grid(unary, coupling, mask=mask)
    for start in ("random", np.zeros((5, 6), int)):
        area = lp.measure(
            potentials, "area", lp.LocPMAP(n_samples=9, start=start, fields=lp.ErrorFields(shared=shared))
        ).values
        assert (area.sum(axis=1) == 24).all()
        assert (area[:, 2] == 0).all()


@pytest.mark.parametrize("shared", [-1.0, np.nan, np.inf, "much", None])
def test_invalid_shared_error_is_refused(shared: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"shared (is|holds)"):
        lp.measure(flat(), "area", lp.LocPMAP(n_samples=2, fields=lp.ErrorFields(shared=shared)))
