"""Expansion moves of both backends, compared with the best of all moves and with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import STRUCTURES, random_model
from tests.support.grid_cases import SHAPES, odd_model

import locpmap as lp
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.cpu.dispatch import kernel_of

Expand = Callable[..., None]


@pytest.fixture(params=["reference", "numba"])
def expand(request: pytest.FixtureRequest) -> Expand:
    """Return the operation of a backend."""
    return kernel_of(request.param, "expand")


def metric_tables(n_edges: int, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Return tables (E, L, L) that are suitable for expansions, and not symmetric."""
    labels = np.arange(n_labels)
    ends = rng.normal(size=(n_edges, n_labels, 1)) + rng.normal(size=(n_edges, 1, n_labels))
    return ends - rng.exponential(size=(n_edges, 1, 1)) * np.minimum(np.abs(labels[:, None] - labels), 2)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("form", ["potts", "tables"])
def test_moves_are_the_best(structure: str, n_labels: int, form: str, expand: Expand) -> None:
    rng = np.random.default_rng(n_labels)
    for seed in range(12):
        model = random_model(structure, "attractive", 7, n_labels, coupling=1.5, forbidden=0.2, seed=seed)
        if form == "tables":
            model = model._replace(tables=metric_tables(len(model.edges), n_labels, rng))
        flat = lp.Potentials.graph(model.unary, model.edges, model.tables).model
        exact = Enumeration(*model)
        for alpha in range(n_labels):
            before = np.array([rng.choice(np.flatnonzero(own > -np.inf)) for own in model.unary])
            reachable = np.flatnonzero(((exact.labellings == alpha) | (exact.labellings == before)).all(axis=1))
            best = reachable[exact.scores[reachable].argmax()]
            labels, gains = before[None].copy(), np.full(1, 7.0)
            expand(flat, labels, alpha, np.zeros(1, np.int64), gains, 0, 1)
            start = exact.scores[(exact.labellings == before).all(axis=1)][0]
            assert gains[0] == pytest.approx(exact.scores[best] - start, abs=1e-10)
            np.testing.assert_array_equal(labels[0], exact.labellings[best])


def test_only_the_given_images_change(expand: Expand) -> None:
    model = lp.Potentials.grid(np.random.default_rng(0).normal(size=(6, 4, 3, 2)), 0.5).model
    start = np.zeros((6, 12), np.int64)
    each, gains = start.copy(), np.empty(6)
    expand(model, each, 1, np.arange(6), gains, 0, 6)
    labels, some = start.copy(), np.full(4, 7.0)
    expand(model, labels, 1, np.array([5, 0, 2, 3]), some, 1, 3)
    np.testing.assert_array_equal(labels, np.where(np.isin(np.arange(6), [0, 2])[:, None], each, start))
    np.testing.assert_array_equal(some, [7.0, gains[0], gains[2], 7.0])


def test_gain_is_nan_if_every_move_is_forbidden(expand: Expand) -> None:
    """The second image allows one move, from labels that are forbidden."""
    unary = np.zeros((2, 2, 2))
    unary[0, 0, 0] = unary[0, 1, 1] = -np.inf
    flat = lp.Potentials.graph(unary, [[0, 1]], np.array([[[-np.inf, -np.inf], [-np.inf, 3.0]]])).model
    labels, gains = np.zeros((2, 2), np.int64), np.zeros(2)
    expand(flat, labels, 1, np.arange(2), gains, 0, 2)
    assert np.isnan(gains[0])
    assert gains[1] == np.inf
    assert labels[1].tolist() == [1, 1]


@pytest.mark.parametrize("n_labels", [2, 3])
def test_small_gains_beside_large_scores_are_found(expand: Expand, n_labels: int) -> None:
    """The sums of all scores, about 1e18, are the same before and after the move in double precision."""
    unary = np.zeros((1, 50, n_labels))
    unary[0, :, 1] = np.where(np.arange(50) % 2, 1, -1)
    unary[0, 0, 0] = 1e18
    labels, gains = np.zeros((1, 50), np.int64), np.zeros(1)
    expand(lp.Potentials.grid(unary.reshape(1, 1, 50, n_labels), 0.0).model, labels, 1, np.arange(1), gains, 0, 1)
    np.testing.assert_array_equal(labels[0], np.arange(50) % 2)
    assert gains == [25]
    coupled = np.zeros((20, 20, n_labels))
    coupled[..., 1], coupled[:5, :, 1] = 1, -1
    result = lp.infer(lp.Potentials.grid(coupled, 1e17), "graph_cut")
    assert (result.labels == 1).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_labels", [1, 2, 5])
@pytest.mark.parametrize("form", ["weight", "weights"])
def test_backends_agree_on_odd_shapes(shape: tuple[int, int], n_labels: int, form: str) -> None:
    for seed in range(12):
        pot = odd_model(shape, n_labels, form, seed)
        check_backends(pot, pot.unary.argmax(axis=2))


@pytest.mark.parametrize("coupling", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_backends_agree_on_larger_images(coupling: float, dtype: Any) -> None:
    """Paths of the flow are long here, and many sites lose their parents."""
    rng = np.random.default_rng(1)
    unary = rng.normal(size=(3, 17, 19, 3)).astype(dtype)
    weights = coupling * rng.exponential(size=(3, 17, 18)), coupling * rng.exponential(size=(16, 19))
    check_backends(lp.Potentials.grid(unary, weights), rng.integers(3, size=(3, 17 * 19)))


def check_backends(pot: lp.Potentials, start: np.ndarray) -> None:
    """Check that a round over all labels has the same result on both backends, and that gains are those of scores."""
    found, expected = (CpuKernels(name, n_threads=2) for name in ("numba", "reference"))
    labels, reference, images = start.copy(), start.copy(), np.arange(pot.n_images)
    for alpha in range(pot.n_labels):
        before = expected.score(pot.view, labels)
        gains = found.expand(pot.view, labels, alpha, images)
        np.testing.assert_allclose(gains, expected.expand(pot.view, reference, alpha, images), atol=1e-10)
        np.testing.assert_allclose(expected.score(pot.view, labels) - before, gains, atol=1e-10)
        np.testing.assert_array_equal(labels, reference)
    found.close()
    expected.close()
