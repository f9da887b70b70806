"""Features and CRFs on volumes: features per edge, learned couplings, other objectives, files and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.statistics import z_bound

import locpmap as lp
from locpmap.errors import InputError, LocpmapError
from locpmap.features import GivenUnary
from locpmap.graphs import Volume
from locpmap.learning import FitOptions

SPACING = (2.0, 1.0, 0.5)
COUPLINGS, SLOPE = (0.35, 0.2, 0.5), 0.6  # per step; unary scores are (0, SLOPE · x)


@pytest.fixture(scope="module")
def volumes() -> Any:
    """Return a function that draws labels of volumes (N, D, H, W), each by its own Gibbs chain."""
    images = np.random.default_rng(0).normal(size=(60, 5, 6, 7))
    unary = np.stack([np.zeros_like(images), SLOPE * images], axis=-1)

    def draw(pairwise: Any, spacing: Any = None) -> tuple[Any, Any]:
        pot = lp.Potentials.volume(unary, pairwise, spacing=spacing)
        return images, lp.infer(pot, lp.Gibbs(1, burn_in=300, keep_samples=True), seed=1).samples[0]

    return draw


def errors_of(crf: lp.CRF) -> Any:
    assert crf.fit_result is not None
    return crf.fit_result.standard_errors


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_couplings_of_each_direction_are_recovered(volumes: Any, objective: str) -> None:
    images, labels = volumes(COUPLINGS)
    features = lp.ImageFeatures(pairwise=("constant",), spacing=1.0)
    crf = lp.CRF(2, features=features, potts=True)
    crf.fit(images, labels, objective, l2=0.0)
    found, error = crf.tables[:, 0, 0, 0], errors_of(crf)[-3:]
    assert (error < 0.1).all()
    assert (np.abs(found - COUPLINGS) / error < z_bound(3, 1e-4)).all()
    assert crf.weights[0, 1] - crf.weights[0, 0] == pytest.approx(SLOPE, abs=0.15)


def test_a_tied_weight_is_scaled_by_the_spacing(volumes: Any) -> None:
    images, labels = volumes(0.6, SPACING)
    features = lp.ImageFeatures(pairwise=("constant",), spacing=SPACING)
    crf = lp.CRF(2, features=features, potts=True, tied=True)
    crf.fit(images, labels, l2=0.0)
    assert np.abs(crf.tables[0, 0, 0, 0] - 0.6) / errors_of(crf)[-1] < z_bound(1, 1e-4)
    plain = lp.CRF(2, features=lp.ImageFeatures(pairwise=("constant",), spacing=1.0), potts=True)
    plain.fit(images, labels, l2=0.0)
    z = (plain.tables[:, 0, 0, 0] - 0.6 * np.array([1.0, 0.5, 0.25])) / errors_of(plain)[-3:]
    assert (np.abs(z) < z_bound(3, 1e-4)).all()


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite", "consistent"])
def test_volumes_of_depth_1_are_fitted_like_images(objective: str) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(12, 5, 6)), rng.integers(3, size=(12, 5, 6))
    flat, deep = lp.CRF(3), lp.CRF(3, features=lp.ImageFeatures(spacing=1.0))
    options = FitOptions(max_iterations=20, standard_errors=False)
    flat.fit(images, labels, objective, options=options)
    deep.fit(images[:, None], labels[:, None], objective, options=options)
    assert deep.tables.shape == (3, 2, 3, 3)
    np.testing.assert_allclose(deep.tables[:2], flat.tables, atol=1e-6)
    np.testing.assert_allclose(deep.tables[2], 0, atol=1e-12)
    np.testing.assert_allclose(deep.weights, flat.weights, atol=1e-6)


def test_the_exact_likelihood_is_fitted_on_tiny_volumes() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(10, 2, 2, 3)), rng.integers(2, size=(10, 2, 2, 3))
    crf = lp.CRF(2, features=lp.ImageFeatures(spacing=1.0), potts=True)
    result = crf.fit(images, labels, "likelihood", l2=0.1)
    pot = crf.potentials(images)
    log_z = lp.infer(pot, "exact").log_partition
    penalty = 0.05 * (2 * crf.weights[0, 1] ** 2 + (crf.tables[:, :, 0, 0] ** 2).sum())
    assert result.value * labels.size == pytest.approx((log_z - pot.score(labels)).sum() + penalty, rel=1e-6)


def test_a_saved_model_decodes_volumes_as_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = [rng.random((2, 4, 5, 2)), rng.random((3, 5, 4, 2))]
    labels = [(image[..., 0] > 0.5).astype(int) for image in images]
    features = lp.ImageFeatures(("intensity", "position"), spacing=SPACING, connectivity=26)
    crf = lp.CRF(2, features=features)
    crf.fit(images, labels)
    crf.save(tmp_path / "model.safetensors")
    loaded = lp.CRF.load(tmp_path / "model.safetensors")
    assert loaded.features == crf.features == replace(features, channels=2)
    structure = loaded.potentials(images[0]).structure
    assert isinstance(structure, Volume)
    assert structure.spacing == SPACING  # for lp.measure
    for found, expected in zip(loaded.infer(images), crf.infer(images), strict=True):
        assert (found.labels == expected.labels).all()
        np.testing.assert_allclose(found.probability, expected.probability, atol=1e-12)


def test_features_of_edges_follow_their_definition() -> None:
    image = np.random.default_rng(0).random((2, 3, 4))
    features = lp.ImageFeatures(("position",), ("constant", "ends", "difference", "contrast"), 26, spacing=SPACING)
    found = features(image)
    sites = np.array(list(np.ndindex(2, 3, 4)))
    mean = np.mean([np.square(image.ravel()[a] - image.ravel()[b]) for a, b in found.structure.edges()])
    for row, (a, b) in zip(found.pairwise[0], found.structure.edges(), strict=True):
        x, y = image.ravel()[[a, b]]
        factor = 0.5 / np.linalg.norm(np.array(SPACING) * (sites[b] - sites[a]))
        expected = [1, x, y, abs(x - y), np.exp(-((x - y) ** 2) / (2 * mean))]
        np.testing.assert_allclose(row, factor * np.array(expected), rtol=1e-12)
    assert found.unary_names == ("plane", "row", "column")
    np.testing.assert_allclose(found.unary[0], 2 * sites / (np.array([2, 3, 4]) - 1) - 1, atol=1e-12)


def test_given_unaries_are_combined_with_the_edges_of_a_scan() -> None:
    logits, scan = np.zeros((2, 3, 4, 5)), np.random.default_rng(0).random((2, 3, 4))
    given = GivenUnary(5, ("constant", "contrast"), spacing=SPACING)
    found = given((logits, scan))
    assert found.unary.shape == (1, 24, 5)
    np.testing.assert_array_equal(
        found.pairwise, lp.ImageFeatures((), ("constant", "contrast"), spacing=SPACING)(scan).pairwise
    )
    assert GivenUnary.from_dict(given.to_dict()) == given
    only = GivenUnary(1, spacing=SPACING)((scan, None))
    np.testing.assert_array_equal(only.pairwise[0, :, 0], found.pairwise[0, :, 0])
    with pytest.raises(InputError, match=r"image \(2, 2, 3, 4\), expected one image of the same size"):
        given((logits, np.stack([scan, scan])))
    for wrong in (logits, (logits, scan, scan)):
        with pytest.raises(InputError, match=r"the input is a (ndarray|tuple), expected a pair \(unary, image\)"):
            given(wrong)  # type: ignore[arg-type]


IMAGES, LABELS = np.zeros((3, 2, 3, 4)), np.zeros((3, 2, 3, 4), int)
BAD: dict[str, tuple[Any, str]] = {
    "no spacing": (lambda: lp.CRF(2).fit(IMAGES, LABELS), "expected .* volumes need spacing="),
    "images": (lambda: lp.ImageFeatures(spacing=1.0)(IMAGES[0, 0]), r"expected \(D, H, W\) or \(N, D, H, W\)"),
    "spacing 0": (lambda: lp.ImageFeatures(spacing=(1.0, 0.0, 1.0)), "spacing is .* from 1e-12 to 1e.12"),
    "two sides": (lambda: lp.Features.volume(IMAGES[..., None], spacing=(1.0, 1.0)), "or 3 of them: .dz, dy, dx"),
    "4 neighbours": (lambda: lp.ImageFeatures(connectivity=4, spacing=1.0), "connectivity is 4, expected 6 or 26"),
    "6 neighbours": (lambda: lp.ImageFeatures(connectivity=6), "connectivity is 6, expected 4 or 8"),
    "a flat unary": (lambda: lp.Features.volume(np.zeros((2, 3, 1))), r"expected \(depth, H, W, D\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(LocpmapError, match=message):
        call()
