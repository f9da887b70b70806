"""Gibbs sampling and simulated annealing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from tests.oracles.enumeration import Enumeration
from tests.oracles.ising import kaufman_energy_per_site, torus_model
from tests.oracles.models import PairwiseModel, random_grid, random_model
from tests.oracles.statistics import batch_means_error, check_z, chi_square_p_value, z_bound
from tests.oracles.transfer_matrix import TransferMatrix
from tests.support.decoding import check_identical, problem_of
from tests.support.odd_models import FORBIDDEN, ODD, normal

from locpmap.errors import InputError
from locpmap.inference import infer
from locpmap.inference.annealing import Annealing
from locpmap.inference.decoder import Problem
from locpmap.inference.gibbs import Gibbs, start_labels
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.model import CONDITIONAL, NOTHING, VOTES
from locpmap.kernels.placement import BACKENDS
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import local_scores
from locpmap.potentials import Potentials
from locpmap.result import Status


def sweep_chain(
    problem: Problem, labels: np.ndarray, totals: np.ndarray, adds: int, temperature: float, sweep: int
) -> None:
    """Draw every site's label once, in place."""
    kernels = CpuKernels(problem.kernels.name)
    kernels.sweep("gibbs", problem.model, labels, totals, adds, temperature, *problem.key, sweep, problem.first_image)


# the kernel compared with the reference


@pytest.mark.parametrize("case", ODD)
def test_every_draw_agrees_with_the_reference(case: str) -> None:
    pot = ODD[case]
    runs = []
    for backend in BACKENDS:
        problem = problem_of(pot, backend)
        labels = start_labels("random", problem)
        votes, sums = np.zeros(pot.unary.shape), np.zeros(pot.unary.shape)
        for sweep in range(6):
            sweep_chain(problem, labels, votes, VOTES, 1.0, 2 * sweep)
            sweep_chain(problem, labels, sums, CONDITIONAL, 0.7, 2 * sweep + 1)
        runs.append((labels, votes, sums))
    (labels, votes, sums), (my_labels, my_votes, my_sums) = runs
    np.testing.assert_array_equal(my_labels, labels)
    np.testing.assert_array_equal(my_votes, votes)
    np.testing.assert_allclose(my_sums, sums, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(sums.sum(axis=2), 6, rtol=1e-12)
    assert (sums[pot.unary == FORBIDDEN] == 0).all()


def test_draw_inverts_the_cumulative_distribution() -> None:
    """One site and one uniform, compared with the explicit formula."""
    unary = normal(1, 5)
    pot = Potentials.graph(unary, [], 1.0)
    problem = problem_of(pot, "numba")
    cumulative = np.cumsum(softmax(unary[0]))
    for sweep in range(200):
        labels = np.zeros((1, 1), np.int64)
        sweep_chain(problem, labels, np.zeros((0, 0, 0)), NOTHING, 1.0, sweep)
        u = noise.uniform(noise.words(problem.key, noise.CHAIN, 2, sweep, np.array([0]))[0])
        assert labels[0, 0] == np.searchsorted(cumulative, u[0])


# the stationary distribution


def transition_matrix(model: PairwiseModel, exact: Enumeration, temperature: float) -> np.ndarray:
    """Return the matrix of one sweep from the kernel's conditional probabilities, in its order of sites."""
    pot = Potentials.graph(*model)
    problem, order = problem_of(pot, "numba"), pot.model.order
    n_states, n_sites = exact.labellings.shape
    place = exact.n_labels ** np.arange(n_sites)[::-1]
    sweep = np.eye(n_states)
    for position, site in enumerate(order):
        matrix = np.zeros((n_states, n_states))
        for state, labelling in enumerate(exact.labellings):
            p = np.zeros(pot.unary.shape)
            labels = labelling[None].astype(np.int64).copy()
            keys = (*problem.key, 0, 0, 0, 1, position, position + 1)
            kernel_of("numba", "gibbs")(pot.model, labels, p, CONDITIONAL, temperature, *keys)
            targets = state + (np.arange(exact.n_labels) - labelling[site]) * place[site]
            matrix[state, targets] = p[0, site]
        sweep = sweep @ matrix
    return sweep


@pytest.mark.parametrize(("kind", "n_labels"), [("random", 2), ("potts", 3)])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sweep_leaves_the_distribution_invariant(kind: str, n_labels: int, temperature: float) -> None:
    model = random_grid(2, 2, n_labels, kind, coupling=1.5, seed=3).flatten()
    exact = Enumeration(*model)
    sweep = transition_matrix(model, exact, temperature)
    p = softmax(exact.scores / temperature)
    np.testing.assert_allclose(sweep.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(p @ sweep, p, atol=1e-12)


def test_forbidden_labels_and_pairs_are_never_drawn() -> None:
    table = np.array([[FORBIDDEN, 0.3], [0.3, 0.0]])  # no two neighbours may both have label 0
    unary = np.array([[[1.0, 0.0], [2.0, 0.0]], [[FORBIDDEN, 0.0], [1.0, 0.5]]])
    pot = Potentials.grid(unary, table)
    exact = Enumeration(pot.unary[0].astype(float), pot.model.edges.astype(np.int64), np.broadcast_to(table, (4, 2, 2)))
    sweep = transition_matrix(PairwiseModel(exact.unary, exact.edges, exact.tables), exact, 1.0)
    np.testing.assert_allclose(exact.probability @ sweep, exact.probability, atol=1e-12)
    result = infer(pot, Gibbs(n_samples=3_000, burn_in=20, thin=5, keep_samples=True), seed=1, n_threads=1)
    assert chi_square_p_value(state_counts(result.samples, exact), exact.probability) > 1e-6


def state_counts(samples: np.ndarray, exact: Enumeration) -> np.ndarray:
    place = exact.n_labels ** np.arange(exact.n_sites)[::-1]
    states = samples.reshape(len(samples), -1).astype(np.int64) @ place
    return np.bincount(states, minlength=len(exact.labellings))


@pytest.mark.parametrize(("structure", "kind", "n_labels"), [("grid", "random", 2), ("full", "potts", 3)])
def test_thinned_states_follow_the_model(structure: str, kind: str, n_labels: int) -> None:
    """Coupling is weak, so every tenth state is nearly independent.  A chi-square test covers all states."""
    model = random_model(structure, kind, 4, n_labels, coupling=0.5, seed=2)
    exact = Enumeration(*model)
    result = infer(Potentials.graph(*model), Gibbs(n_samples=4_000, thin=10, keep_samples=True), seed=5, n_threads=1)
    assert chi_square_p_value(state_counts(result.samples, exact), exact.probability) > 1e-6
    # The test has power: a model with half the coupling is rejected.
    weaker = Enumeration(model.unary, model.edges, model.tables / 2)
    assert chi_square_p_value(state_counts(result.samples, exact), weaker.probability) < 1e-6


@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_marginals_of_a_narrow_grid(probability: str) -> None:
    """Means of 200 independent chains agree with the transfer matrix."""
    grid = random_grid(7, 5, 2, "random", coupling=0.7, seed=6)
    n_chains, n_sweeps, burn_in = 200, 60, 100
    unary = np.broadcast_to(grid.unary, (n_chains, *grid.unary.shape))
    pot = Potentials.grid(unary, (grid.horizontal, grid.vertical))
    exact = TransferMatrix(*grid).marginals[..., 1].ravel()
    problem = problem_of(pot, "numba")
    labels, totals = start_labels("random", problem), np.zeros(pot.unary.shape)
    adds = VOTES if probability == "votes" else CONDITIONAL
    for sweep in range(burn_in + n_sweeps):
        sweep_chain(problem, labels, totals, adds if sweep >= burn_in else NOTHING, 1.0, sweep)
    means = totals[..., 1] / n_sweeps
    t = (means.mean(axis=0) - exact) / (means.std(axis=0, ddof=1) / np.sqrt(n_chains))
    z = stats.norm.ppf(stats.t.cdf(t, n_chains - 1))  # from Student's t, because the error is estimated
    check_z(z, np.atleast_2d(np.corrcoef(means.T)))


def test_conditional_probabilities_vary_less_than_votes() -> None:
    """In 50 chains, both estimates use the same draws; the mean difference of their errors is significant."""
    grid = random_grid(6, 4, 2, "random", coupling=0.5, seed=7)
    pot = Potentials.grid(np.broadcast_to(grid.unary, (50, *grid.unary.shape)), (grid.horizontal, grid.vertical))
    exact = TransferMatrix(*grid).marginals
    votes, conditional = (
        ((infer(pot, Gibbs(probability=name), seed=1).probability - exact) ** 2).mean(axis=(1, 2, 3))
        for name in ("votes", "conditional")
    )
    saved = votes - conditional
    assert saved.mean() > z_bound(1) * saved.std(ddof=1) / np.sqrt(len(saved))


def test_energy_of_the_ising_torus() -> None:
    """Eight chains agree with Kaufman's exact energy below the critical coupling."""
    coupling, side = 0.35, 8
    model = torus_model(side, side, coupling)
    pot = Potentials.graph(np.broadcast_to(model.unary, (8, *model.unary.shape)), model.edges, model.tables)
    result = infer(pot, Gibbs(n_samples=1_500, burn_in=200, keep_samples=True), seed=9)
    spins = 2.0 * result.samples - 1
    energy = -(spins[..., model.edges[:, 0]] * spins[..., model.edges[:, 1]]).sum(axis=-1) / side**2
    error = np.sqrt((batch_means_error(energy, n_batches=15) ** 2).sum()) / 8
    check_z((energy.mean() - kaufman_energy_per_site(side, side, coupling)) / error)


# options, threads, batches


def test_votes_are_fractions_of_the_samples() -> None:
    result = infer(ODD["primes"], Gibbs(n_samples=7, burn_in=3, thin=2, keep_samples=True))
    assert result.samples.shape == (7, 3, 5)
    assert (result.n_samples, result.n_sweeps, result.status) == (7, 17, Status.COMPLETE)
    np.testing.assert_allclose(result.probability, (result.samples[..., None] == np.arange(3)).mean(axis=0))
    every = infer(ODD["primes"], Gibbs(n_samples=17, burn_in=0, keep_samples=True))
    np.testing.assert_array_equal(result.samples, every.samples[4::2])


def test_start() -> None:
    unary = normal(3, 4, 2)
    unary[0, 0, 1] = FORBIDDEN
    pot = Potentials.grid(unary, 50.0)  # strong coupling: the first sweep retains the labels of the start
    for label in (0, 1):
        start = np.full((3, 4), label)
        start[0, 0] = 0
        result = infer(pot, Gibbs(n_samples=1, burn_in=0, start=start))
        assert (result.labels[1:, 1:] == label).all()
    with pytest.raises(InputError, match="forbids"):
        infer(pot, Gibbs(start=np.ones((3, 4), int)))
    with pytest.raises(InputError, match="start"):
        infer(pot, Gibbs(start="unary"))


def test_time_limit_during_burn_in_returns_the_current_state() -> None:
    result = infer(ODD["primes"], Gibbs(burn_in=1_000), max_seconds=0)
    assert (result.status, result.n_samples, result.n_sweeps) == (Status.BURN_IN, 0, 1)
    assert set(np.unique(result.probability)) == {0, 1}


@pytest.mark.parametrize(
    "decoder", [Gibbs(n_samples=5, probability="conditional"), Annealing(n_sweeps=20)], ids=lambda d: d.name
)
@pytest.mark.parametrize("case", ["batch", "factored", "table per edge and image", "primes", "forbidden pairs"])
def test_results_do_not_depend_on_threads(decoder: Any, case: str) -> None:
    one, *others = (infer(ODD[case], decoder, n_threads=n, seed=3) for n in (1, 2, 3))
    for other in others:
        check_identical(one, other)


@pytest.mark.parametrize(
    "decoder", [Gibbs(n_samples=5, probability="conditional"), Annealing(n_sweeps=20)], ids=lambda d: d.name
)
def test_batch_equals_single_images(decoder: Any) -> None:
    unary, right, down = normal(3, 4, 5, 3), normal(3, 4, 4), normal(3, 3, 5)
    batch = infer(Potentials.grid(unary, (right, down)), decoder, first_image=9)
    for n in range(3):
        alone = infer(Potentials.grid(unary[n], (right[n], down[n])), decoder, first_image=9 + n)
        np.testing.assert_array_equal(alone.labels, batch.labels[n])
        if batch.probability is not None:
            assert alone.probability.tobytes() == batch.probability[n].tobytes()


@pytest.mark.parametrize("case", ["far apart", "far apart, tables", "nothing allowed"])
@pytest.mark.parametrize(
    "decoder", [Gibbs(n_samples=5, probability="conditional"), Annealing(n_sweeps=20)], ids=lambda d: d.name
)
def test_extreme_scores(decoder: Any, case: str) -> None:
    result = infer(ODD[case], decoder)
    assert ((result.labels >= 0) & (result.labels < ODD[case].n_labels)).all()
    if result.probability is not None:
        np.testing.assert_allclose(result.probability.sum(axis=-1), 1, rtol=1e-12)


@pytest.mark.parametrize("options", [{"n_samples": 0}, {"burn_in": -1}, {"thin": 0}, {"probability": "share"}], ids=str)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Gibbs(**options)


# annealing


def test_annealing_finds_the_best_labelling_of_small_models() -> None:
    for seed in range(10):
        model = random_model("full", "random", 8, 3, coupling=1.0, seed=seed)
        result = infer(Potentials.graph(*model), Annealing(n_sweeps=200), seed=seed)
        assert result.score == pytest.approx(Enumeration(*model).map_score, abs=1e-9)
        assert result.probability is None


def test_annealing_ends_at_a_local_maximum() -> None:
    pot = Potentials.grid(normal(10, 12, 4), (normal(10, 11), normal(9, 12)))
    hot = infer(pot, Annealing(n_sweeps=5, start_temperature=50, end_temperature=20))
    scores = local_scores(pot.model, hot.labels.reshape(1, -1))[0]
    assert (scores.max(axis=1) <= scores[np.arange(120), hot.labels.ravel()] + 1e-12).all()
    slow = infer(pot, Annealing(n_sweeps=300))
    assert slow.score > hot.score


def test_annealing_returns_the_best_labelling_found() -> None:
    """A chain at a constant high temperature does not stay at the best labelling."""
    pot = Potentials.grid(normal(4, 4, 3), 0.5)
    problem = problem_of(pot, "numba")
    decoder = Annealing(n_sweeps=50, start_temperature=5.0, end_temperature=5.0)
    state = decoder.init(problem)
    scores = []
    for _ in range(50):
        decoder.step(problem, state)
        scores.append(pot.score(pot.unflatten(state.chain.labels)))
    assert state.incumbent.score[0] == pytest.approx(max(scores), rel=1e-12)
    assert max(scores) > scores[-1]
    assert pot.score(pot.unflatten(state.incumbent.labels)) == pytest.approx(max(scores), rel=1e-12)
    assert pot.score(pot.unflatten(decoder.finish(problem, state).labels)) >= max(scores) - 1e-12


def test_temperature_decreases_geometrically() -> None:
    """Without edges, the fraction of the better label is the sigmoid of the score difference over the temperature."""
    pot = Potentials.graph(np.tile([0.0, 1.0], (20_000, 1)), [], 1.0)
    problem = problem_of(pot, "numba")
    decoder = Annealing(n_sweeps=4, start_temperature=8.0, end_temperature=1.0)
    state = decoder.init(problem)
    z = []
    for temperature in (8, 4, 2, 1):
        decoder.step(problem, state)
        p = 1 / (1 + np.exp(-1 / temperature))
        z.append((state.chain.labels.mean() - p) / np.sqrt(p * (1 - p) / 20_000))
    check_z(z)


@pytest.mark.parametrize(
    "options",
    [{"n_sweeps": 0}, {"start_temperature": 0}, {"end_temperature": 0}, {"end_temperature": 5}, {"max_sweeps": 0}],
    ids=str,
)
def test_bad_options_of_annealing(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Annealing(**options)
