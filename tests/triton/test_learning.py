"""Fits with Triton kernels match those with the reference or with Numba kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.triton.placing import DEVICE

import locpmap as lp
from locpmap.crf import fitting
from locpmap.errors import BackendError
from locpmap.kernels import cache
from locpmap.kernels.placement import place
from locpmap.learning.batches import Batch
from locpmap.learning.objectives import Objective
from locpmap.learning.parameters import Parameters


def images_and_labels(n_labels: int, n_images: int = 2, shape: tuple[int, int] = (3, 4)) -> tuple[Any, Any]:
    rng = np.random.default_rng(n_labels)
    labels = rng.integers(n_labels, size=(n_images, *shape))
    return labels + rng.normal(size=labels.shape), labels


LIMITS = {"max_iterations", "tolerance", "standard_errors"}


def fit_both(n_labels: int, objective: str, **how: Any) -> tuple[Any, Any]:
    images, labels = images_and_labels(n_labels)
    labels[0, 1, 2] = -1
    limits = {"max_iterations": 3, "standard_errors": False} | {k: how.pop(k) for k in LIMITS & set(how)}
    options: dict[str, Any] = {"objective": objective, "options": lp.learning.FitOptions(**limits)} | how
    crfs = [lp.CRF(n_labels, ignore_label=-1) for _ in range(2)]
    mine, expected = (
        crf.fit(images, labels, backend=b, **options) for crf, b in zip(crfs, ("triton", "reference"), strict=True)
    )
    return mine, expected


@pytest.mark.parametrize(
    ("n_labels", "objective", "how"),
    [
        (2, "pseudolikelihood", {}),
        (3, "pseudolikelihood", {}),
        (2, "composite", {"blocks": "rows"}),
        pytest.param(3, "composite", {"blocks": "rows"}, marks=pytest.mark.slow),
    ],
)
def test_fit_matches_the_reference(n_labels: int, objective: str, how: dict[str, Any]) -> None:
    mine, expected = fit_both(n_labels, objective, **how)
    assert (mine.n_iterations, mine.status) == (expected.n_iterations, expected.status)
    np.testing.assert_allclose(mine.w, expected.w, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(mine.curve, expected.curve, rtol=1e-9)


def test_fit_with_tiles_matches_the_reference() -> None:
    mine, expected = fit_both(2, "composite", blocks=(2, 2), max_iterations=2)
    np.testing.assert_allclose(mine.w, expected.w, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("n_labels", "objective"), [(2, "pseudolikelihood"), (2, "composite"), (3, "pseudolikelihood")]
)
def test_fit_does_not_depend_on_the_memory_layout_of_labels(n_labels: int, objective: str) -> None:
    images, labels = images_and_labels(n_labels, n_images=3, shape=(2, 3))
    stacked = np.moveaxis(np.ascontiguousarray(np.moveaxis(labels, 0, -1)), -1, 0)
    how: dict[str, Any] = {
        "backend": "triton",
        "blocks": "rows" if objective == "composite" else None,
        "options": lp.learning.FitOptions(max_iterations=1, standard_errors=False),
    }
    mine, expected = (
        lp.CRF(n_labels, ignore_label=-1).fit(images, given, objective, **how) for given in (stacked, labels)
    )
    np.testing.assert_array_equal(mine.w, expected.w)
    np.testing.assert_array_equal(mine.curve, expected.curve)


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_fit_in_inference_mode_matches_the_reference(objective: str) -> None:
    """Inference-mode tensors have no version counter that would count writes."""
    with torch.inference_mode():
        mine, expected = fit_both(2, objective, max_iterations=1)
    np.testing.assert_allclose(mine.w, expected.w, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_consistent_learning_samples_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = images_and_labels(2, n_images=5, shape=(2, 2))
    devices: dict[str, set[str]] = {"triton": set(), "numba": set()}

    def fitted(backend: str) -> Any:
        def watched(*given: Any, **options: Any) -> Any:
            devices[backend].add(options["device"])
            return lp.samples(*given, **options)

        monkeypatch.setattr(fitting, "samples", watched)
        how = lp.learning.FitOptions(max_iterations=1)
        return lp.CRF(2).fit(images, labels, "consistent", backend=backend, options=how)

    mine, expected = (fitted(backend) for backend in devices)
    np.testing.assert_allclose(mine.w, expected.w, rtol=1e-7, atol=1e-7)
    assert devices == {"triton": {DEVICE}, "numba": {"auto"}}


@pytest.mark.slow
def test_weighted_fit_and_standard_errors_match_numba() -> None:
    images, labels = images_and_labels(2, n_images=10)
    how: dict[str, Any] = {"site_weights": np.linspace(0.5, 2, 10), "options": lp.learning.FitOptions(max_iterations=1)}
    mine, expected = (lp.CRF(2).fit(images, labels, backend=backend, **how) for backend in ("triton", "numba"))
    np.testing.assert_allclose(mine.w, expected.w, rtol=1e-7, atol=1e-7)
    assert mine.standard_errors is not None
    assert expected.standard_errors is not None
    np.testing.assert_allclose(mine.standard_errors, expected.standard_errors, rtol=1e-5)


def test_objective_with_samples_as_neighbours_matches_the_reference() -> None:
    images, labels = images_and_labels(2)
    batch = Batch(lp.ImageFeatures()(images), labels.reshape(len(labels), -1).astype(np.int16), np.ones((1, 1)))
    parameters = Parameters(2, batch.features.unary_names, batch.features.pairwise_names, n_groups=2)
    rng = np.random.default_rng(0)
    w, samples = rng.normal(size=parameters.size), rng.integers(2, size=(*batch.labels.shape, 3)).astype(np.int16)
    mine, expected = (
        Objective(parameters, place(backend, "auto"), l2=1.0)(batch, w, samples) for backend in ("triton", "reference")
    )
    assert mine[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(mine[1], expected[1], rtol=1e-10, atol=1e-10)


def test_cached_values_are_released_with_their_arrays() -> None:
    arrays = np.arange(2), np.arange(3)
    made = cache.cached(arrays, "sum", lambda: object())
    assert cache.cached(arrays, "sum", lambda: object()) is made
    assert cache.cached(arrays, "product", lambda: object()) is not made
    assert cache.cached((arrays[0], arrays[1].copy()), "sum", lambda: object()) is not made
    before = len(cache._entries)
    del arrays
    assert len(cache._entries) == before - 2


def test_selection_of_backend_and_device() -> None:
    assert place("auto", "auto").name == "numba"
    assert place("triton", "auto").device == DEVICE
    assert place("auto", "cuda").name == "triton"
    with pytest.raises(BackendError, match="runs on the CPU: use 'triton'"):
        place("numba", "cuda")
