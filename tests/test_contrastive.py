"""Contrastive learning compared with enumeration: between pseudolikelihood and likelihood."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.oracles.exact_data import exact_images

import locpmap as lp
from locpmap.crf.fitting import chains_of
from locpmap.features import ImageFeatures
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.learning import FitOptions
from locpmap.learning.batches import VOID, Batch
from locpmap.learning.objectives import Objective
from locpmap.learning.parameters import Parameters


def small(n_images: int, shape: tuple[int, int], seed: int = 0) -> tuple[Batch, Parameters, Any]:
    """Return random images with three labels, their parameters, and random weights."""
    rng = np.random.default_rng(seed)
    images, labels = rng.normal(size=(n_images, *shape)), rng.integers(0, 3, (n_images, *shape))
    parameters = Parameters(3, ("intensity",), ("constant", "difference"), 2)
    flat = labels.reshape(n_images, -1).astype(np.int16)
    return Batch(ImageFeatures()(images), flat, np.ones((1, 1))), parameters, rng.normal(size=parameters.size)


@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_the_gradient_is_the_derivative_of_the_score_difference(backend: str) -> None:
    batch, parameters, w = small(3, (4, 4))
    batch.labels[:, ::5] = VOID
    batch = Batch(batch.features, batch.labels, np.array([[1.0], [2.0], [0.5]]))
    samples = chains_of(parameters, 2, "sites", 1)(batch, w, 3, 0, 0)
    assert ((samples == VOID) == (batch.labels == VOID)[:, :, None]).all()
    objective = Objective(parameters, CpuKernels(backend), l2=0.0, contrastive=True)
    value, gradient = objective(batch, w, samples)
    crf = lp.CRF(3)
    crf.parameters, crf._learned = parameters, parameters.expand(w)
    crf.features = None
    pot = crf.potentials(batch.features, mask=batch.mask())
    means = np.mean([pot.score(pot.unflatten(samples[:, :, m])) for m in range(3)], axis=0)
    expected = ((means - pot.score(pot.unflatten(batch.labels))) * [1, 2, 0.5]).sum()
    assert value == pytest.approx(expected, rel=1e-10)
    assert gradient @ w == pytest.approx(value, rel=1e-10)  # the score is linear in w
    direction = np.random.default_rng(1).normal(size=len(w))
    ahead, behind = (objective(batch, w + h * direction, samples)[0] for h in (1e-4, -1e-4))
    assert gradient @ direction == pytest.approx((ahead - behind) / 2e-4, rel=1e-6)


def test_blocks_are_drawn_on_the_cpu_during_a_fit_on_a_gpu() -> None:
    batch, parameters, w = small(2, (3, 4))
    for blocks in ("rows", (2, 2), [[0, 1], [2, 3]]):
        on_gpu, on_cpu = (chains_of(parameters, 2, blocks, 1, device)(batch, w, 1, 5, 0) for device in ("cuda", "cpu"))
        np.testing.assert_array_equal(on_gpu, on_cpu)


def moments(n_steps: int, blocks: Any = "sites", n_chains: int = 1500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean gradient of many chains on a 2×2 grid, its standard error, and the gradient of the likelihood."""
    batch, parameters, w = small(1, (2, 2), seed=2)
    objective = Objective(parameters, CpuKernels("numba"), l2=0.0, contrastive=True)
    samples = chains_of(parameters, n_steps, blocks, 1)(batch, w, n_chains, 0, 0)
    states, chain = np.unique(samples[0], axis=1, return_inverse=True)  # of 81
    each = np.array([objective(batch, w, state[None, :, None])[1] for state in states.T])[chain.reshape(-1)]
    likelihood = Objective(parameters, CpuKernels("numba"), 0.0, "all")(batch, w)[1]
    return each.mean(axis=0), each.std(axis=0) / np.sqrt(n_chains), likelihood


def test_long_chains_give_the_gradient_of_the_likelihood() -> None:
    mean, error, likelihood = moments(n_steps=40)
    assert np.abs((mean - likelihood) / np.maximum(error, 1e-9)).max() < 4.5
    short, error, _ = moments(n_steps=1)
    assert np.abs((short - likelihood) / np.maximum(error, 1e-9)).max() > 10  # one sweep is not enough


def test_one_sweep_over_whole_images_gives_the_gradient_of_the_likelihood() -> None:
    mean, error, likelihood = moments(1, (2, 2))
    assert np.abs((mean - likelihood) / np.maximum(error, 1e-9)).max() < 4.5
    rows, error, _ = moments(1, "rows")
    assert np.abs((rows - likelihood) / np.maximum(error, 1e-9)).max() > 10


def test_short_chains_follow_the_transition_matrix() -> None:
    """The mean gradient after k sweeps equals that of the k-th power of the sweep's transition matrix."""
    batch, parameters, w = small(1, (2, 2), seed=2)
    states = np.array(list(product(range(3), repeat=4)))
    crf = lp.CRF(3)
    crf.parameters, crf._learned, crf.features = parameters, parameters.expand(w), None
    pot = crf.potentials(batch.features)
    sweep = np.eye(len(states))
    scores = np.array([pot.score(pot.unflatten(state[None])) for state in states]).ravel()
    for site in pot.model.order:
        others = np.delete(states, site, axis=1)
        together = (others[:, None] == others[None]).all(axis=2)
        weights = np.where(together, np.exp(scores - scores.max())[None], 0.0)
        sweep = sweep @ (weights / weights.sum(axis=1, keepdims=True))
    objective = Objective(parameters, CpuKernels("numba"), l2=0.0, contrastive=True)
    every = np.array([objective(batch, w, state[None, :, None].astype(np.int16))[1] for state in states])
    start = int((states == batch.labels[0]).all(axis=1).argmax())
    for n_steps in (1, 3):
        mean, error, _ = moments(n_steps)
        expected = np.linalg.matrix_power(sweep, n_steps)[start] @ every
        assert np.abs((mean - expected) / np.maximum(error, 1e-9)).max() < 4.5


@pytest.mark.parametrize(("n_steps", "blocks"), [(1, None), (10, None), (2, "rows+columns"), (1, (4, 3))])
def test_known_weights_are_found(n_steps: int, blocks: Any) -> None:
    """The error of the weights is compatible with the standard error of the pseudolikelihood."""
    images, labels = exact_images(400, 4, 3, 1.5, 0.6, np.random.default_rng(3))
    crf = lp.CRF(2, features=ImageFeatures(pairwise=("constant",)), potts=True, tied=True)
    errors = crf.fit(images, labels, l2=0.0).standard_errors
    assert errors is not None
    result = crf.fit(images, labels, "contrastive", n_steps=n_steps, blocks=blocks, l2=0.0)
    assert result.converged
    assert result.objective == "contrastive"
    assert crf.weights[0, 1] - crf.weights[0, 0] == pytest.approx(1.5, abs=4 * 2 * errors[0])
    assert crf.tables[0, 0, 0, 0] == pytest.approx(0.6, abs=4 * errors[-1])


def test_many_sweeps_give_the_likelihood_estimate() -> None:
    images, labels = exact_images(200, 3, 3, 1.0, 1.0, np.random.default_rng(4))
    how: dict[str, Any] = {"features": ImageFeatures(pairwise=("constant",)), "potts": True, "tied": True}
    likelihood, contrastive, plain = (lp.CRF(2, **how) for _ in range(3))
    exact = likelihood.fit(images, labels, "likelihood", l2=0.0)
    found = contrastive.fit(images, labels, "contrastive", n_steps=30, l2=0.0)
    start = plain.fit(images, labels, l2=0.0)
    assert exact.standard_errors is not None
    # Samples in the last 30 steps add a thirtieth of the variance.
    assert np.abs((found.w - exact.w)[[0, 4]] / exact.standard_errors[[0, 4]]).max() < 4 / np.sqrt(30)
    assert np.abs(found.w - exact.w).max() < np.abs(start.w - exact.w).max()


def test_penalty_and_bounds_hold() -> None:
    rng = np.random.default_rng(5)
    images, labels = rng.normal(size=(40, 5, 5)), np.indices((40, 5, 5)).sum(axis=0) % 2  # neighbours always differ
    how: dict[str, Any] = {"features": ImageFeatures(pairwise=("constant",)), "potts": True, "tied": True}
    crf = lp.CRF(2, non_negative=True, **how)
    assert crf.fit(images, labels, "contrastive", n_steps=1).w[-1] == 0
    free = lp.CRF(2, **how)
    weak, strong = (float(free.fit(images, labels, "contrastive", n_steps=2, l2=l2).w[-1]) for l2 in (10.0, 1000.0))
    assert weak < strong < 0


def test_fits_do_not_depend_on_threads_and_few_iterations_are_reported() -> None:
    images, labels = exact_images(30, 3, 3, 1.0, 0.5, np.random.default_rng(6))
    one, two = (
        lp.CRF(2).fit(images, labels, "contrastive", options=FitOptions(max_iterations=6, n_threads=n)) for n in (1, 2)
    )
    np.testing.assert_array_equal(one.w, two.w)
    assert len(one.curve) == one.n_iterations


def test_labels_that_never_change_are_fitted() -> None:
    """Gibbs sampling from the data stays there: there is no difference, and no derivative."""
    labels = np.tile(np.repeat([0, 1], 3), (12, 6, 1))
    result = lp.CRF(2).fit(1e3 * (2.0 * labels - 1), labels, "contrastive", n_steps=1, l2=0.0)
    assert result.converged
    assert np.isfinite(result.w).all()
