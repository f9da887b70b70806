"""LocPMAP and ICM: samples are local maxima under their noise, and results follow from the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from tests.oracles import statistics
from tests.oracles.enumeration import Enumeration
from tests.oracles.local_maxima import local_maxima
from tests.oracles.models import random_grid, random_model, random_unary
from tests.support.climbs import PERTURB, check_ascent, check_locally_optimal, flat_samples, perturbed_unaries
from tests.support.noise import SCHEMES, LazyNoise
from tests.support.strategies import models

from locpmap.graphs import Graph
from locpmap.inference import infer
from locpmap.inference.icm import ICM
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import local_scores
from locpmap.noise import key_of
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials
from locpmap.result import Result, Status

BACKENDS = ("reference", "numba")


# no edges


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scheme", PERTURB)
@pytest.mark.parametrize("n_labels", [2, 4])
def test_without_edges_a_draw_is_the_argmax_of_the_perturbed_unary(n_labels: int, scheme: str, backend: str) -> None:
    unary = np.random.default_rng(1).normal(size=(3, 4, n_labels))
    pot = Potentials.grid(unary, 0.0)
    n_samples = 2000 if backend == "numba" else 40
    result = infer(pot, SCHEMES[scheme](n_samples, keep_samples=True), seed=5, backend=backend)
    assert result.noise == scheme
    drawn = flat_samples(pot, result)
    exact = perturbed_unaries(pot, scheme, 40, seed=5).argmax(axis=3)
    np.testing.assert_array_equal(drawn[:40], exact)
    hits = (drawn[:, 0, :, None] == np.arange(n_labels)).reshape(n_samples, -1).T
    if backend == "numba":
        statistics.check_events(hits, softmax(unary, axis=2).ravel())


def test_graph_without_edges() -> None:
    unary = random_unary((7,), 3, 0.3, np.random.default_rng(2))
    pot = Potentials.graph(unary, [], 1.0)
    result = infer(pot, "locpmap", n_samples=2000, keep_samples=True)
    hits = (result.samples[:, :, None] == np.arange(3)).reshape(2000, -1).T
    statistics.check_events(hits, softmax(unary, axis=1).ravel())


# attractive models of two labels


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["attractive", "submodular"])
@pytest.mark.parametrize("scheme", PERTURB)
def test_least_and_greatest_local_maximum(kind: str, scheme: str, backend: str) -> None:
    """Climbs from all-0 end at the least local maximum, from all-1 at the greatest, others in between."""
    grid = random_grid(3, 3, 2, kind, coupling=1.5, seed=4)
    pot = Potentials.grid(grid.unary - 7, (grid.horizontal, grid.vertical))  # only differences of unaries matter
    n_samples = 40
    unaries = perturbed_unaries(pot, scheme, n_samples)[:, 0]
    exact = Enumeration(*grid.flatten())
    maxima = local_maxima(exact, [[i] for i in range(9)], list(np.moveaxis(unaries - pot.unary[0], 1, 0)))
    bounds = [exact.labellings[found] for found in maxima.T]
    least, greatest = np.array([b.min(axis=0) for b in bounds]), np.array([b.max(axis=0) for b in bounds])

    def climb(start: Any) -> Result:
        return infer(pot, SCHEMES[scheme](n_samples, start=start, keep_samples=True), backend=backend)

    np.testing.assert_array_equal(flat_samples(pot, climb(np.zeros((3, 3), int)))[:, 0], least)
    np.testing.assert_array_equal(flat_samples(pot, climb(np.ones((3, 3), int)))[:, 0], greatest)
    for start in ("random", "perturbed", grid.unary.argmax(axis=2)):
        between = flat_samples(pot, climb(start))[:, 0]
        assert (least <= between).all()
        assert (between <= greatest).all()
        assert all((y == found).all(axis=1).any() for y, found in zip(between, bounds, strict=True))
    assert 0 < np.mean([len(found) == 1 for found in bounds]) < 1  # some draws have one maximum, others several


@pytest.mark.parametrize("order_seed", range(5))
def test_extreme_maxima_do_not_depend_on_the_order_of_updates(order_seed: int) -> None:
    grid = random_grid(4, 4, 2, "attractive", coupling=1.5, seed=6)
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    unaries = perturbed_unaries(pot, "lazy", 8)
    order = np.random.default_rng(order_seed)
    for label in (0, 1):
        start = np.full((4, 4), label)
        result = infer(pot, LazyNoise(8, start=start, keep_samples=True), backend="numba")
        for unary, expected in zip(unaries[:, 0], flat_samples(pot, result)[:, 0], strict=True):
            y = start.ravel().copy()
            before = None
            while before is None or (y != before).any():
                before = y.copy()
                for i in order.permutation(16):
                    y[i] = local_scores(pot.model, y, 0, unary)[i].argmax()
            np.testing.assert_array_equal(y, expected)


# local optimality and ascent


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40)
@given(pot=models(), seed=st.integers(0, 2**64 - 1))
def test_samples_are_local_maxima_and_climbs_never_lower_the_score(backend: str, pot: Potentials, seed: int) -> None:
    result = infer(pot, LocPMAP(4, keep_samples=True), seed=seed, backend=backend)
    assert result.noise is not None
    unaries = perturbed_unaries(pot, result.noise, 4, seed)
    assert result.status is (Status.FORBIDDEN if np.isneginf(result.score) else Status.COMPLETE)
    check_locally_optimal(pot, unaries, flat_samples(pot, result))
    allowed = np.take_along_axis(pot.unary[0], flat_samples(pot, result)[:, 0].T.astype(np.int64), axis=1) > -np.inf
    assert allowed.all()
    y = noise.start_labels(pot.unary[0], noise.words(key_of(seed), noise.START, 0, 0, pot.structure.site_ids())[0])
    check_ascent(pot, unaries[0, 0], y, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shape", "n_labels"), [((1, 1), 2), ((1, 9), 3), ((7, 5), 2), ((23, 18), 6)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
def test_a_climb_without_noise_is_icm(
    backend: str, shape: tuple[int, int], n_labels: int, dtype: type, ties: bool
) -> None:
    """Compare two kernels: without noise, LocPMAP climbs a grid by rows; ICM uses lists of neighbours."""
    height, width = shape
    rng = np.random.default_rng(n_labels)
    unary: np.ndarray = 2 * rng.normal(size=(2, height, width, n_labels)).astype(dtype)
    unary[rng.random(unary.shape) < 0.1] = -np.inf
    unary[..., 0] = np.maximum(unary[..., 0], -3)
    weights = [rng.uniform(0, 1.5, (height, width - 1)), rng.uniform(0, 1.5, (2, height - 1, width))]
    if ties:
        unary, weights = np.round(unary), [np.ceil(weight) for weight in weights]
    pot = Potentials.grid(unary, tuple(weights))
    found = infer(pot, LocPMAP(1, start="perturbed", temperature=0, probability="votes"), backend=backend)
    expected = infer(pot, ICM(start="unary"), backend=backend)
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize("weight", [-1.5, 1.5])
def test_couplings_of_either_sign_count(weight: float) -> None:
    unary = np.random.default_rng(0).normal(size=(12, 12, 3))
    assert (infer(Potentials.grid(unary, weight), ICM(start="unary")).labels != unary.argmax(-1)).any()


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(pot=models(), seed=st.integers(0, 1000))
def test_icm_ends_in_a_local_maximum_of_the_score(backend: str, pot: Potentials, seed: int) -> None:
    result = infer(pot, "icm", seed=seed, backend=backend)
    assert result.status is Status.CONVERGED
    check_locally_optimal(pot, pot.unary[None], result.labels[None, None])
    again = infer(pot, ICM(start=result.labels), backend=backend)
    np.testing.assert_array_equal(again.labels, result.labels)
    assert again.n_sweeps == 0


# estimates from the samples


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batched", [False, True])
def test_votes_are_fractions_of_the_samples(backend: str, batched: bool) -> None:
    unary = np.random.default_rng(8).normal(size=((2,) if batched else ()) + (3, 4, 3))
    result = infer(Potentials.grid(unary, 0.5), LocPMAP(30, probability="votes", keep_samples=True), backend=backend)
    assert result.samples.shape == (30, *unary.shape[:-1])
    assert result.samples.dtype == np.int16
    fractions = (result.samples[..., None] == np.arange(3)).mean(axis=0)
    np.testing.assert_allclose(result.probability, fractions, rtol=1e-15)
    np.testing.assert_array_equal(result.labels, result.probability.argmax(axis=-1))
    np.testing.assert_allclose(result.variance, fractions * (1 - fractions), rtol=1e-12)
    entropy = -(fractions * np.log(np.where(fractions > 0, fractions, 1))).sum(axis=-1)
    np.testing.assert_allclose(result.entropy, entropy, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_labels", [2, 3])
def test_conditional_probabilities_are_means_of_exact_conditionals(n_labels: int, backend: str) -> None:
    model = random_model("cycle", n_sites=5, n_labels=n_labels, forbidden=0.1, seed=9)
    pot = Potentials.graph(*model)
    result = infer(pot, LocPMAP(50, probability="conditional", keep_samples=True), backend=backend)
    exact = Enumeration(*model)
    expected = np.zeros((5, n_labels))
    for i, k in np.ndindex(5, n_labels):
        changed = result.samples.astype(np.int64)
        changed[:, i] = k
        index = np.ravel_multi_index(tuple(changed.T), (n_labels,) * 5)
        expected[i, k] = exact.block_conditional([i])[index].mean()
    np.testing.assert_allclose(result.probability, expected, atol=1e-9)
    np.testing.assert_array_equal(result.labels, expected.argmax(axis=1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_conditional_probabilities_without_an_allowed_label(backend: str) -> None:
    """A climb may end where forbidden pairs leave a site no allowed label; its probabilities must still sum to 1."""
    forced = np.array([[0.0, -np.inf], [0.0, 0.5], [-np.inf, 0.0]])
    equal = np.where(np.eye(2) > 0, 0.0, -np.inf)  # the middle site would have to equal both 0 and 1
    pot = Potentials.graph(forced, [[0, 1], [1, 2]], equal)
    result = infer(pot, LocPMAP(8, probability="conditional"), backend=backend)
    assert ((result.probability >= 0) & (result.probability <= 1)).all()
    np.testing.assert_allclose(result.probability.sum(axis=1), 1)
    np.testing.assert_array_equal(result.probability[[0, 2]], [[1, 0], [0, 1]])


# stopping


POT = Potentials.grid(np.random.default_rng(10).normal(size=(6, 6, 2)), 0.5)


def test_max_seconds_returns_the_samples_drawn_so_far() -> None:
    result = infer(POT, "locpmap", n_samples=100_000, max_seconds=0)
    assert result.status is Status.MAX_SECONDS
    assert not result.converged
    assert 0 < result.n_samples < 100_000
    np.testing.assert_array_equal(result.probability, infer(POT, "locpmap", n_samples=result.n_samples).probability)


def test_images_are_counted_up_to_the_last_number() -> None:
    batch = Potentials.grid(np.random.default_rng(10).normal(size=(2, 6, 6, 2)), 0.5)
    assert infer(POT, "locpmap", first_image=2**28 - 1).n_samples == 50
    with pytest.raises(ValueError, match=r"first_image is 268435455, expected first_image \+ the batch to stay below"):
        infer(batch, "locpmap", first_image=2**28 - 1)


@pytest.mark.parametrize("method", ["locpmap", "icm", "icm_iter"])
def test_progress_is_called_for_every_step(method: str) -> None:
    reports: list[tuple[int, int]] = []
    options: dict[str, Any] = {} if method == "icm" else {"n_samples": 200}
    infer(POT, method, progress=lambda done, total: reports.append((done, total)), **options)
    assert all(0 <= done <= total for done, total in reports)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    if method != "icm":
        assert len(reports) > 1
        assert reports[-1] == (200, 200)


def test_interrupted_climbs_are_reported() -> None:
    cut = infer(POT, "locpmap", max_sweeps=1)
    assert cut.status is Status.CLIMBS_CUT
    assert not cut.converged
    assert cut.n_sweeps <= 1
    whole = infer(POT, "locpmap")
    assert whole.status is Status.COMPLETE
    assert whole.converged
    assert 1 < whole.n_sweeps < 20
    assert infer(POT, "icm", max_sweeps=1).status is Status.MAX_SWEEPS


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties(backend: str) -> None:
    """A site retains a label that is among the best; otherwise it takes the smallest of the best."""
    start = np.arange(12).reshape(3, 4) % 3
    for pairwise in (0.0, np.zeros((3, 3))):
        pot = Potentials.grid(np.zeros((3, 4, 3)), pairwise)
        for decoder in (ICM(start=start), LocPMAP(1, start=start, probability="votes", temperature=0)):
            result = infer(pot, decoder, backend=backend)
            np.testing.assert_array_equal(result.labels, start)
            assert result.n_sweeps == 0
        tie = infer(Potentials.grid(np.tile([0.0, 1.0, 1.0], (3, 4, 1)), pairwise), ICM(start=start), backend=backend)
        np.testing.assert_array_equal(tie.labels, np.where(start == 0, 1, start))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_results_without_a_climb(backend: str, probability: str) -> None:
    """Without coupling and noise no climb is needed; the result equals that of a model where one is performed."""
    unary = np.random.default_rng(3).integers(-2, 2, (2, 3, 5, 4)).astype(float)  # with ties
    unary[unary == -2] = -np.inf
    unary[..., 2] = 0.5
    how: dict[str, Any] = {"start": "perturbed", "temperature": 0, "probability": probability, "keep_samples": True}
    still, climbed = (
        infer(Potentials.grid(unary, pairwise), LocPMAP(3, **how), backend=backend)
        for pairwise in (0.0, Factored((np.zeros((3, 4, 1)), np.zeros((2, 5, 1))), np.zeros((1, 4, 4))))
    )
    for name in ("labels", "probability", "samples", "n_sweeps", "status", "n_samples", "noise"):
        np.testing.assert_array_equal(getattr(still, name), getattr(climbed, name), err_msg=name)
    np.testing.assert_array_equal(still.labels, unary.argmax(axis=3))


def test_icm_starts() -> None:
    graph = Graph(3, [[0, 1], [1, 2]])
    pot = Potentials.graph(np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 0.0]]), graph, 0.0)
    assert infer(pot, ICM(start="unary")).labels.tolist() == [0, 1, 0]
    assert infer(pot, ICM(start="unary")).n_sweeps == 0
    assert infer(pot, ICM(start=[1, 0, 1])).n_sweeps == 1


@pytest.mark.parametrize("n_labels", [256, 257])
@pytest.mark.parametrize("decoder", [LocPMAP(8, keep_samples=True), LocPMAP(8, blocks="rows", keep_samples=True)])
def test_samples_hold_the_last_of_many_labels(n_labels: int, decoder: LocPMAP) -> None:
    """Samples of up to 256 labels are bytes."""
    unary = np.zeros((3, 4, n_labels), np.float32)
    unary[:, :2, -1] = unary[:, 2:, -2] = 40.0
    result = infer(Potentials.grid(unary, 0.5), decoder)
    assert result.samples is not None
    np.testing.assert_array_equal(result.samples, np.broadcast_to(unary.argmax(axis=2), (8, 3, 4)))
    np.testing.assert_array_equal(result.labels, unary.argmax(axis=2))
