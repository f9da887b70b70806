"""Oracles compared with each other; no two of them share an algorithm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from tests.oracles import ising, statistics
from tests.oracles.chains import Tree, forward_backward, viterbi
from tests.oracles.coupling_from_the_past import exact_samples
from tests.oracles.enumeration import Enumeration
from tests.oracles.local_maxima import local_maxima
from tests.oracles.models import KINDS, STRUCTURES, PairwiseModel, random_grid, random_model
from tests.oracles.transfer_matrix import TransferMatrix


def score(model: PairwiseModel, labels: np.ndarray) -> float:
    """Compute the score in plain loops, from its definition."""
    total = sum(model.unary[i, label] for i, label in enumerate(labels))
    return float(total + sum(model.tables[e, labels[i], labels[j]] for e, (i, j) in enumerate(model.edges)))


# models


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_seeded_and_well_formed(structure: str, kind: str) -> None:
    model = random_model(structure, kind, n_sites=6, n_labels=3, seed=5)
    for array, again in zip(model, random_model(structure, kind, n_sites=6, n_labels=3, seed=5), strict=True):
        np.testing.assert_array_equal(array, again)
    n_edges = {"grid": 7, "full": 15, "star": 5, "tree": 5, "chain": 5, "cycle": 6}[structure]
    assert model.unary.shape == (6, 3)
    assert model.edges.shape == (n_edges, 2)
    assert model.tables.shape == (n_edges, 3, 3)
    assert len({frozenset(edge) for edge in model.edges.tolist()}) == n_edges
    assert (model.edges[:, 0] != model.edges[:, 1]).all()
    corner = model.tables[:, :-1, :-1] + model.tables[:, 1:, 1:] - model.tables[:, :-1, 1:] - model.tables[:, 1:, :-1]
    if kind == "submodular":
        assert (corner > 0).all()
    if kind == "attractive":
        assert (np.diagonal(model.tables, axis1=1, axis2=2) > 0).all()


def test_every_site_has_an_allowed_label() -> None:
    unary = random_model("chain", n_sites=200, n_labels=3, forbidden=0.6, seed=1).unary
    assert np.isneginf(unary).mean() > 0.3
    assert np.isfinite(unary).any(axis=1).all()


# enumeration


def test_enumeration_follows_the_definition() -> None:
    model = random_model("cycle", n_sites=4, n_labels=3, forbidden=0.2, seed=2)
    exact = Enumeration(*model)
    labellings = list(itertools.product(range(3), repeat=4))
    np.testing.assert_array_equal(exact.labellings, labellings)
    scores = np.array([score(model, np.array(y)) for y in labellings])
    np.testing.assert_allclose(exact.scores, scores, rtol=1e-12)
    p = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(exact.probability, p, atol=1e-14)
    assert exact.log_partition == pytest.approx(np.log(np.exp(scores).sum()), abs=1e-12)
    assert exact.map_score == pytest.approx(scores.max(), abs=1e-12)
    assert score(model, exact.map_labels) == pytest.approx(scores.max(), abs=1e-12)
    for (i, j), table in zip(model.edges, exact.edge_marginals, strict=True):
        for a, b in itertools.product(range(3), repeat=2):
            together = sum(q for q, y in zip(p, labellings, strict=True) if (y[i], y[j]) == (a, b))
            assert table[a, b] == pytest.approx(together, abs=1e-14)
    np.testing.assert_allclose(exact.edge_marginals[0].sum(axis=1), exact.marginals[0], atol=1e-14)


def test_block_conditionals_follow_the_definition() -> None:
    exact = Enumeration(*random_model("grid", n_sites=6, forbidden=0.2, seed=3))
    for block in ([2], [4, 1], [0, 1, 2, 3, 4, 5]):
        rest = [i for i in range(6) if i not in block]
        for y, p, conditional in zip(exact.labellings, exact.probability, exact.block_conditional(block), strict=True):
            same = (exact.labellings[:, rest] == y[rest]).all(axis=1)
            total = exact.probability[same].sum()
            assert conditional == pytest.approx(p / total if total else 0.0, abs=1e-14)
    assert exact.expected_maxima([range(6)]) == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(exact.block_product([range(6)]), exact.probability, atol=1e-14)


def test_without_edges_the_product_of_conditionals_is_the_distribution() -> None:
    model = random_model("chain", n_sites=5, n_labels=3, seed=4)
    exact = Enumeration(model.unary, model.edges[:0], model.tables[:0])
    np.testing.assert_allclose(exact.block_product([[i] for i in range(5)]), exact.probability, atol=1e-14)
    assert exact.edge_marginals.shape == (0, 3, 3)


def test_local_maxima_follow_the_definition() -> None:
    exact = Enumeration(*random_model("grid", n_sites=4, n_labels=2, forbidden=0.1, seed=6))
    rng = np.random.default_rng(0)
    blocks, n_draws = [[0, 2], [1], [3]], 30
    noise = [rng.gumbel(size=(n_draws, 2 ** len(block))) for block in blocks]
    found = local_maxima(exact, blocks, noise)
    number = {tuple(y): n for n, y in enumerate(exact.labellings.tolist())}
    for n, d in itertools.product(range(16), range(n_draws)):
        y, is_maximum = exact.labellings[n], exact.scores[n] > -np.inf
        for block, perturbation in zip(blocks, noise, strict=True):
            values = {}
            for joint, labels in enumerate(itertools.product(range(2), repeat=len(block))):
                other = y.copy()
                other[block] = labels
                values[labels] = exact.scores[number[tuple(other)]] + perturbation[d, joint]
            is_maximum &= values[tuple(y[block])] == max(values.values())
        assert found[n, d] == is_maximum


# transfer matrix


@pytest.mark.parametrize(
    ("height", "width", "n_labels"),
    [(3, 4, 2), (4, 3, 2), (2, 7, 2), (3, 2, 3), (2, 4, 3), (1, 5, 4), (5, 1, 4), (1, 1, 3)],
)
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_transfer_matrix_equals_enumeration(height: int, width: int, n_labels: int, forbidden: float) -> None:
    grid = random_grid(height, width, n_labels, forbidden=forbidden, seed=7)
    matrix, exact = TransferMatrix(*grid), Enumeration(*grid.flatten())
    assert matrix.log_partition == pytest.approx(exact.log_partition, abs=1e-12)
    assert matrix.map_score == pytest.approx(exact.map_score, abs=1e-12)
    np.testing.assert_allclose(matrix.marginals.reshape(-1, n_labels), exact.marginals, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(matrix.map_labels.ravel(), exact.map_labels)


def test_transfer_matrix_with_ties() -> None:
    grid = random_grid(3, 4, kind="attractive", seed=0)
    flat = grid._replace(unary=np.zeros_like(grid.unary))
    labels = TransferMatrix(*flat).map_labels
    assert score(flat.flatten(), labels.ravel()) == pytest.approx(TransferMatrix(*flat).map_score, abs=1e-12)


def test_transfer_matrix_of_a_long_grid() -> None:
    grid = random_grid(10, 200, coupling=0.4, seed=8)
    matrix = TransferMatrix(*grid)
    np.testing.assert_allclose(matrix.marginals.sum(axis=-1), 1.0, atol=1e-9)
    assert score(grid.flatten(), matrix.map_labels.ravel()) == pytest.approx(matrix.map_score, abs=1e-8)


def test_transfer_matrix_rejects_wide_grids() -> None:
    with pytest.raises(ValueError, match="frontier states"):
        TransferMatrix(*random_grid(11, 11))


# chains and trees


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_chain_equals_enumeration(forbidden: float) -> None:
    model = random_model("chain", n_sites=6, n_labels=4, forbidden=forbidden, seed=9)
    exact = Enumeration(*model)
    log_partition, marginals = forward_backward(model.unary, model.tables)
    assert log_partition == pytest.approx(exact.log_partition, abs=1e-12)
    np.testing.assert_allclose(marginals, exact.marginals, atol=1e-12)
    best, labels = viterbi(model.unary, model.tables)
    assert best == pytest.approx(exact.map_score, abs=1e-12)
    np.testing.assert_array_equal(labels, exact.map_labels)


@pytest.mark.parametrize("structure", ["tree", "star", "chain", "forest"])
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_tree_equals_enumeration(structure: str, forbidden: float) -> None:
    model = random_model(structure.replace("forest", "tree"), n_sites=7, n_labels=3, forbidden=forbidden, seed=10)
    if structure == "forest":
        model = PairwiseModel(model.unary, np.delete(model.edges, 2, axis=0), np.delete(model.tables, 2, axis=0))
    tree, exact = Tree(*model), Enumeration(*model)
    assert tree.log_partition == pytest.approx(exact.log_partition, abs=1e-12)
    np.testing.assert_allclose(tree.marginals, exact.marginals, atol=1e-12)
    assert tree.map_score == pytest.approx(exact.map_score, abs=1e-12)
    np.testing.assert_array_equal(tree.map_labels, exact.map_labels)


def test_tree_rejects_a_cycle() -> None:
    with pytest.raises(ValueError, match="cycle"):
        Tree(*random_model("cycle"))


def test_long_chain_equals_the_transfer_matrix() -> None:
    grid = random_grid(1, 300, 5, seed=11)
    log_partition, marginals = forward_backward(grid.unary[0], grid.horizontal[0])
    matrix = TransferMatrix(*grid)
    assert log_partition == pytest.approx(matrix.log_partition, abs=1e-9)
    np.testing.assert_allclose(marginals, matrix.marginals[0], atol=1e-10)
    best, labels = viterbi(grid.unary[0], grid.horizontal[0])
    assert best == pytest.approx(matrix.map_score, abs=1e-9)
    np.testing.assert_array_equal(labels, matrix.map_labels[0])


# Ising


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (4, 3), (3, 5)])
@pytest.mark.parametrize("coupling", [0.1, 0.3, ising.CRITICAL_COUPLING, 0.7])
def test_kaufman_equals_enumeration(shape: tuple[int, int], coupling: float) -> None:
    model = ising.torus_model(*shape, coupling)
    exact = Enumeration(*model)
    assert ising.kaufman_log_partition(*shape, coupling) == pytest.approx(exact.log_partition, abs=1e-10)
    agreement = np.einsum("eab,ab->", exact.edge_marginals, [[1, -1], [-1, 1]])
    energy = ising.kaufman_energy_per_site(*shape, coupling)
    assert energy == pytest.approx(-agreement / (shape[0] * shape[1]), abs=1e-10)


@pytest.mark.parametrize("coupling", [0.2, 0.35, 0.6])
def test_kaufman_converges_to_onsager(coupling: float) -> None:
    """Corrections decay exponentially away from the critical coupling; above it, two phases add log 2."""
    height, width = 90, 110
    log_partition = ising.kaufman_log_partition(height, width, coupling)
    phases = np.log(2) if coupling > ising.CRITICAL_COUPLING else 0.0
    per_site = (log_partition - phases) / (height * width)
    assert per_site == pytest.approx(ising.onsager_free_energy(coupling), abs=1e-9)


def test_onsager_at_the_critical_point() -> None:
    """The free energy is log(2) / 2 + 2 G / π with Catalan's constant G."""
    expected = np.log(2) / 2 + 2 * 0.915965594177219 / np.pi
    assert ising.onsager_free_energy(ising.CRITICAL_COUPLING) == pytest.approx(expected, abs=1e-9)


# coupling from the past


@pytest.mark.parametrize("kind", ["attractive", "submodular"])
def test_exact_samples_have_the_marginals_of_the_transfer_matrix(kind: str) -> None:
    grid = random_grid(6, 9, kind=kind, coupling=0.6, seed=12)
    samples = exact_samples(*grid.flatten(), 4000, np.random.default_rng(0))
    expected = TransferMatrix(*grid).marginals[..., 1].ravel()
    statistics.check_events(samples.T == 1, expected)


def test_exact_samples_have_the_distribution_of_enumeration() -> None:
    model = random_model("full", "attractive", n_sites=6, coupling=0.6, forbidden=0.1, seed=13)
    exact = Enumeration(*model)
    samples = exact_samples(*model, 20_000, np.random.default_rng(1))
    counts = np.bincount(samples @ 2 ** np.arange(5, -1, -1), minlength=64)
    assert statistics.chi_square_p_value(counts, exact.probability) > statistics.ERROR


def test_exact_samples_reject_repulsion() -> None:
    with pytest.raises(ValueError, match="t00"):
        exact_samples(*random_model("grid", "random"), 1, np.random.default_rng(0))


# statistics: each check accepts correct values and rejects slightly wrong ones


def correlated_events(n_events: int, n_draws: int, seed: int) -> np.ndarray:
    """Draw events of probability ½ whose causes have half of their variance in common."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n_draws) + rng.normal(size=(n_events, n_draws)) > 0


def test_bound_grows_with_comparisons() -> None:
    assert statistics.z_bound(1) == pytest.approx(4.89, abs=0.01)
    assert statistics.z_bound(300) == pytest.approx(5.95, abs=0.05)


def test_check_z_rejects_large_and_small_spread() -> None:
    z = np.random.default_rng(0).normal(size=300)
    statistics.check_z(z)
    for factor in (0.5, 1.5):
        with pytest.raises(AssertionError, match="mean of z²"):
            statistics.check_z(factor * z)
    with pytest.raises(AssertionError, match=r"max \|z\|"):
        statistics.check_z(np.append(z, 7.0))


def test_mean_of_squares_has_the_stated_error_under_dependence() -> None:
    """Over many repetitions the spread of mean z² is √(2 Σ ρ²) / m, not √(2 / m)."""
    n_events, n_draws, repeats = 40, 400, 400
    means = []
    for seed in range(repeats):
        z = statistics.z_scores(correlated_events(n_events, n_draws, seed).sum(axis=1), 0.5, n_draws)
        means.append((z**2).mean())
    correlation = np.corrcoef(correlated_events(n_events, 100_000, repeats))
    stated = np.sqrt(2 * (correlation**2).sum()) / n_events
    ratio = np.std(means) / stated
    # mean z² is about χ² with ν = 2 / stated² degrees of freedom, whose kurtosis 3 + 12 / ν sets this standard error
    error = np.sqrt((2 + 6 * stated**2) / repeats) / 2
    assert abs(ratio - 1) < statistics.z_bound(1) * error
    assert stated > 2 * np.sqrt(2 / n_events)


def test_check_events_accepts_dependence_and_rejects_bias() -> None:
    hits = correlated_events(50, 20_000, 0)
    statistics.check_events(hits, np.full(50, 0.5))
    with pytest.raises(AssertionError):
        statistics.check_events(hits, np.full(50, 0.52))
    with pytest.raises(AssertionError, match="impossible"):
        statistics.check_events(hits, np.zeros(50))


def test_check_mean() -> None:
    values = np.random.default_rng(2).exponential(size=10_000)
    statistics.check_mean(values, 1.0)
    with pytest.raises(AssertionError):
        statistics.check_mean(values, 1.06)


def test_chi_square_p_values_are_uniform() -> None:
    rng = np.random.default_rng(3)
    probability = rng.dirichlet(np.ones(20))
    p_values = [statistics.chi_square_p_value(rng.multinomial(2000, probability), probability) for _ in range(500)]
    assert stats.kstest(p_values, "uniform").pvalue > statistics.ERROR
    wrong = probability * np.linspace(0.8, 1.2, 20)
    counts = rng.multinomial(20_000, wrong / wrong.sum())
    assert statistics.chi_square_p_value(counts, probability) < statistics.ERROR
    assert statistics.chi_square_p_value([5, 5, 1], [0.5, 0.5, 0.0]) == 0.0
    assert statistics.chi_square_p_value([500, 499, 1], [0.5, 0.49999, 0.00001]) > 0.5  # one rare hit is no evidence
    assert statistics.chi_square_p_value([1000, 0], [1.0, 0.0]) == 1.0


def test_batch_means_include_the_autocorrelation() -> None:
    """An AR(1) chain with coefficient a and unit innovations has standard error 1 / (1 − a) / √n."""
    rng = np.random.default_rng(4)
    n_steps, a, n_batches = 50_000, 0.9, 50
    chain = np.zeros((n_steps, 20))
    for t in range(1, n_steps):
        chain[t] = a * chain[t - 1] + rng.normal(size=20)
    ratio = statistics.batch_means_error(chain, n_batches) / (1 / (1 - a) / np.sqrt(n_steps))
    # the squared ratio is χ² / dof, independently in 20 columns; batches of 1000 steps lose 1 % to correlation
    error = np.sqrt(2 / (n_batches - 1) / 20)
    assert abs((ratio**2).mean() - 1) < statistics.z_bound(1) * error + 0.02
