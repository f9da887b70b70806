"""Graph cuts compared with enumeration, the transfer matrix and PyMaxflow."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import STRUCTURES, PairwiseModel, random_grid, random_model
from tests.oracles.transfer_matrix import TransferMatrix

import locpmap as lp
from locpmap.inference.graph_cut import GraphCut


def potentials(model: PairwiseModel) -> lp.Potentials:
    return lp.Potentials.graph(model.unary, model.edges, model.tables)


def metric_model(structure: str, seed: int, n_sites: int = 6, n_labels: int = 4) -> PairwiseModel:
    """Return a model of truncated linear tables plus terms of single labels, which do not affect expansions."""
    model = random_model(structure, "attractive", n_sites, n_labels, seed=seed)
    rng = np.random.default_rng(seed)
    labels = np.arange(n_labels)
    distance = np.minimum(np.abs(labels[:, None] - labels), 2)
    weight = rng.exponential(size=(len(model.edges), 1, 1))
    ends = rng.normal(size=(len(model.edges), n_labels, 1)) + rng.normal(size=(len(model.edges), 1, n_labels))
    return model._replace(tables=ends - weight * distance)


def best_labels(bias: np.ndarray, edges: np.ndarray, ahead: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Return the best labels (N, S) for biases (N, S) of label 1 and costs (N, E) of the pairs 10 and 01."""
    unary = np.stack([np.where(bias == np.inf, -np.inf, 0.0), np.where(bias == np.inf, 0.0, bias)], axis=2)
    zero = np.zeros_like(ahead)
    tables = np.stack([np.stack([zero, -back], axis=2), np.stack([-ahead, zero], axis=2)], axis=2)
    return np.asarray(lp.infer(lp.Potentials.graph(unary, edges, tables), GraphCut()).labels)


# two labels


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["potts", "attractive", "submodular"])
@pytest.mark.parametrize("n_sites", [3, 6, 12])
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_two_labels_are_exact(structure: str, kind: str, n_sites: int, forbidden: float) -> None:
    model = random_model(structure, kind, n_sites, 2, coupling=1.5, forbidden=forbidden, seed=n_sites)
    if kind == "potts":
        model.tables[:] = np.abs(model.tables)
    result = lp.infer(potentials(model), GraphCut())
    assert result.score == pytest.approx(Enumeration(*model).map_score, abs=1e-10)
    assert result.status is lp.result.Status.EXACT
    assert result.probability is None


@pytest.mark.parametrize("coupling", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_narrow_grids_equal_the_transfer_matrix(coupling: float, scale: float) -> None:
    grid = random_grid(40, 8, 2, "submodular", coupling=coupling, seed=1)
    unary, horizontal, vertical = (scale * part for part in grid)
    result = lp.infer(lp.Potentials.grid(unary, (horizontal, vertical)), GraphCut())
    assert result.score == pytest.approx(TransferMatrix(unary, horizontal, vertical).map_score, rel=1e-12)


def test_forbidden_pairs_are_respected() -> None:
    possible = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        model = random_model(STRUCTURES[seed % 6], "submodular", 8, 2, forbidden=0.1, coupling=1.5, seed=seed)
        for table in model.tables:
            pairs = [[], [(0, 1)], [(1, 0)], [(0, 1), (1, 0)], [(0, 0), (0, 1)], [(0, 1), (1, 1)], []][rng.integers(7)]
            for pair in pairs:
                table[pair] = -np.inf
        best = Enumeration(*model).map_score
        if best == -np.inf:
            with pytest.raises(lp.InputError, match="forbids"):
                lp.infer(potentials(model), GraphCut())
        else:
            possible += 1
            assert lp.infer(potentials(model), GraphCut()).score == pytest.approx(best, abs=1e-10)
    assert 15 < possible < 60


def test_equals_pymaxflow() -> None:
    maxflow = pytest.importorskip("maxflow", reason="PyMaxflow is not installed")
    for seed in range(6):
        grid = random_grid(30, 40, 2, "attractive", coupling=[0.2, 1.0, 4.0][seed % 3], seed=seed)
        model = grid.flatten()
        graph = maxflow.GraphFloat()
        sites = graph.add_grid_nodes(len(model.unary))
        weight = model.tables[:, 0, 0]
        graph.add_edges(*model.edges.T, weight, weight)
        bias = model.unary[:, 1] - model.unary[:, 0]
        graph.add_grid_tedges(sites, np.maximum(bias, 0), np.maximum(-bias, 0))
        graph.maxflow()
        expected = potentials(model).score((~graph.get_grid_segments(sites)).astype(int))
        assert lp.infer(potentials(model), GraphCut()).score == pytest.approx(expected, rel=1e-13)


def test_capacities_of_very_different_size() -> None:
    """A single rounding to 32 bits would lose the small terms next to the large ones."""
    rng = np.random.default_rng(2)
    for seed in range(20):
        model = random_model("grid", "attractive", 12, 2, seed=seed)
        big = rng.random(len(model.edges)) < 0.3
        model.tables[big] *= 1e10
        model.unary[rng.random(12) < 0.5] *= 1e-3
        labels, best = lp.infer(potentials(model), GraphCut()).labels, Enumeration(*model).map_labels
        small = potentials(model._replace(tables=np.where(big[:, None, None], 0, model.tables)))
        np.testing.assert_array_equal(*((y[model.edges[big, 0]] == y[model.edges[big, 1]]) for y in (labels, best)))
        assert small.score(labels) == pytest.approx(small.score(best), abs=1e-12)


def test_repelling_tables_raise_errors() -> None:
    with pytest.raises(lp.InputError, match=r"is -2 on edge 1 between sites 1 and 2"):
        lp.infer(lp.Potentials.graph(np.zeros((3, 2)), [[0, 1], [1, 2]], np.array([1.0, -1.0])), GraphCut())
    horizontal, vertical = np.ones((2, 2)), np.array([[1.0, 1.0, -0.5]])
    with pytest.raises(lp.InputError, match=r"is -1 on edge 6 between sites \(0, 2\) and \(1, 2\)"):
        lp.infer(lp.Potentials.grid(np.zeros((2, 3, 2)), (horizontal, vertical)), GraphCut())
    with pytest.raises(lp.InputError, match=r"is -inf on edge 0"):
        lp.infer(lp.Potentials.graph(np.zeros((2, 2)), [[0, 1]], np.array([[[-np.inf, 0], [0, 0.0]]])), GraphCut())


def test_repulsion_between_forbidden_labels_is_ignored() -> None:
    for bias in (0.5, -0.5):
        pot = lp.Potentials.graph(np.array([[0, -np.inf], [0.0, bias]]), [[0, 1]], np.array([-1.0]))
        for backend in ("numba", "reference"):
            assert lp.infer(pot, GraphCut(), backend=backend).labels.tolist() == [0, 1]


def test_single_precision_rounding_is_not_repulsion() -> None:
    table = np.array([[1, 2 / 3], [1 / 3, -6e-8]])
    pots = [lp.Potentials.graph(np.zeros((2, 2)), [[0, 1]], table[None].astype(t)) for t in (np.float32, np.float64)]
    assert lp.infer(pots[0], GraphCut()).score == 1
    with pytest.raises(lp.InputError, match="attract"):
        lp.infer(pots[1], GraphCut())


def test_batch_equals_single_images() -> None:
    rng = np.random.default_rng(3)
    unary = rng.normal(size=(30, 14, 9, 2)) * rng.choice([0.1, 1, 10], size=(30, 1, 1, 1))
    unary[rng.random(unary.shape[:-1]) < 0.05, 1] = -np.inf
    weights = rng.exponential(size=(30, 14, 8)), rng.exponential(size=(30, 13, 9))
    batch = lp.infer(lp.Potentials.grid(unary, weights), GraphCut())
    for n in range(30):
        alone = lp.infer(lp.Potentials.grid(unary[n], (weights[0][n], weights[1][n])), GraphCut())
        np.testing.assert_array_equal(batch.labels[n], alone.labels)


def test_ties() -> None:
    """Either all labellings are optimal, or one site determines the labels of all others."""
    assert lp.infer(lp.Potentials.grid(np.zeros((3, 3, 2)), 0.0), GraphCut()).score == 0
    unary = np.zeros((3, 3, 2))
    unary[1, 1, 1] = 1.0
    assert (lp.infer(lp.Potentials.grid(unary, 2.0), GraphCut()).labels == 1).all()


@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_no_edges(n_labels: int) -> None:
    unary = np.random.default_rng(4).normal(size=(5, n_labels))
    result = lp.infer(lp.Potentials.graph(unary, np.zeros((0, 2), int), 1.0), GraphCut())
    np.testing.assert_array_equal(result.labels, unary.argmax(axis=1))


def test_directed_and_infinite_links() -> None:
    """The input of the maximum flow may have links that cost in one direction only."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        edges = np.array([(i, j) for i in range(7) for j in range(i) if rng.random() < 0.5]).reshape(-1, 2)
        bias = rng.normal(size=(3, 7)) * rng.choice([1, 1000])
        ahead, back = (rng.exponential(size=(3, len(edges))) * (rng.random((3, len(edges))) < 0.8) for _ in range(2))
        ahead[rng.random(ahead.shape) < 0.2] = np.inf
        every = np.indices((2,) * 7).reshape(7, -1).T
        first, second = every[:, edges[:, 0]], every[:, edges[:, 1]]
        found = best_labels(bias, edges, ahead, back)
        for n in range(3):
            cost = np.where(first > second, ahead[n], 0) + np.where(first < second, back[n], 0)
            value = every @ bias[n] - cost.sum(axis=1)
            assert value[found[n] @ 2 ** np.arange(6, -1, -1)] == pytest.approx(value.max(), rel=1e-11)


def test_differences_below_32_bits_are_resolved() -> None:
    """Two strongly coupled sites have biases that differ in the tenth digit; a single rounding would cancel them."""
    edges, link = np.array([[0, 1]]), np.array([[10.0]])
    for bias in ([0.3 + 1e-10, -0.3], [0.3, -0.3 - 1e-10], [-0.3, 0.3 + 1e-10], [-0.3 - 1e-10, 0.3]):
        label = int(sum(bias) > 0)
        assert best_labels(np.array([bias]), edges, link, link).tolist() == [[label, label]]


def test_capacities_of_powers_of_two_do_not_overflow() -> None:
    edges = np.array([[0, 1]])
    for power in (-40, 0, 31, 60):
        link, bias = np.array([[2.0**power]]), np.array([[2.0**power, -(2.0**power) * 0.75]])
        assert best_labels(bias, edges, link, link).tolist() == [[1, 1]]


def test_flow_along_long_chains() -> None:
    """One image has two chains of implications whose first sites are fixed, one to each label."""
    chain = np.stack([np.arange(199), np.arange(1, 200)], axis=1)
    edges = np.concatenate([chain, chain + 200])
    bias = np.repeat([[-1.0, 1.0]], 200)[None]
    bias[0, [0, 200]] = np.inf, -np.inf
    one_way, other_way = np.repeat([np.inf, 0.0], 199)[None], np.repeat([0.0, np.inf], 199)[None]
    assert best_labels(bias, edges, one_way, other_way).tolist() == [[1] * 200 + [0] * 200]


# more labels


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["attractive", "metric"])
def test_no_expansion_improves_the_result(structure: str, kind: str) -> None:
    for seed in range(5):
        model = metric_model(structure, seed) if kind == "metric" else random_model(structure, kind, 6, 4, seed=seed)
        result = lp.infer(potentials(model), GraphCut())
        assert result.status is lp.result.Status.CONVERGED
        exact = Enumeration(*model)
        assert result.score <= exact.map_score + 1e-9
        for alpha in range(4):
            reachable = ((exact.labellings == alpha) | (exact.labellings == result.labels)).all(axis=1)
            assert exact.scores[reachable].max() <= result.score + 1e-9


def test_expansion_with_forbidden_labels() -> None:
    for seed in range(10):
        model = random_model("grid", "attractive", 6, 4, forbidden=0.4, seed=seed)
        result = lp.infer(potentials(model), GraphCut())
        exact = Enumeration(*model)
        assert np.isfinite(result.score)
        for alpha in range(4):
            reachable = ((exact.labellings == alpha) | (exact.labellings == result.labels)).all(axis=1)
            assert exact.scores[reachable].max() <= result.score + 1e-9


def test_expansion_is_within_a_factor_of_two_for_potts() -> None:
    """The bound E <= 2 E_best for Potts models requires non-negative energies."""
    for seed in range(10):
        model = random_model("grid", "attractive", 6, 4, coupling=2.0, seed=seed)
        highest = model.unary.max(axis=1).sum() + model.tables[:, 0, 0].sum()
        energy = highest - lp.infer(potentials(model), GraphCut()).score
        assert energy <= 2 * (highest - Enumeration(*model).map_score) + 1e-9


def test_batch_with_more_labels_equals_single_images() -> None:
    unary = np.random.default_rng(5).normal(size=(7, 6, 5, 3))
    batch = lp.infer(lp.Potentials.grid(unary, 0.7), GraphCut())
    for n in range(7):
        np.testing.assert_array_equal(batch.labels[n], lp.infer(lp.Potentials.grid(unary[n], 0.7), GraphCut()).labels)


def test_tables_unsuitable_for_expansion_raise_errors() -> None:
    with pytest.raises(lp.InputError, match=r"fails on edge 1 between sites 1 and 2 for α = 0, β = 1, γ = 1"):
        lp.infer(lp.Potentials.graph(np.zeros((3, 3)), [[0, 1], [1, 2]], np.array([1.0, -1.0])), GraphCut())
    square = -np.square(np.arange(3)[:, None] - np.arange(3.0))
    with pytest.raises(lp.InputError, match=r"α = 1, β = 0, γ = 2"):
        lp.infer(lp.Potentials.grid(np.zeros((2, 2, 3)), square), GraphCut())
    square[0, 2] = -np.inf
    with pytest.raises(lp.InputError, match=r"forbidden pairs .* edge 0 between sites \(0, 0\) and \(0, 1\)"):
        lp.infer(lp.Potentials.grid(np.zeros((2, 2, 3)), square), GraphCut())


def test_max_sweeps_limits_the_sweeps() -> None:
    unary = np.random.default_rng(6).normal(size=(30, 30, 5))
    result = lp.infer(lp.Potentials.grid(unary, 1.0), GraphCut(max_sweeps=1))
    assert result.status is lp.result.Status.MAX_SWEEPS
    assert result.n_sweeps == 1
    assert result.score < lp.infer(lp.Potentials.grid(unary, 1.0), GraphCut()).score
    with pytest.raises(lp.InputError, match="max_sweeps is 0"):
        GraphCut(max_sweeps=0)
