"""Variable elimination compared with enumeration, the transfer matrix, dynamic programming and Kaufman's torus."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.chains import Tree, forward_backward, viterbi
from tests.oracles.enumeration import Enumeration
from tests.oracles.ising import kaufman_log_partition, torus_model
from tests.oracles.models import KINDS, STRUCTURES, PairwiseModel, random_grid, random_model
from tests.oracles.transfer_matrix import TransferMatrix

import locpmap as lp
from locpmap.graphs import Graph, Grid
from locpmap.inference import elimination
from locpmap.inference.elimination import plan_elimination
from locpmap.inference.exact import Exact


def potentials(model: PairwiseModel) -> lp.Potentials:
    return lp.Potentials.graph(model.unary, model.edges, model.tables if len(model.edges) else 0.0)


def check_exact(result: lp.Result, oracle: Enumeration | Tree | TransferMatrix) -> None:
    assert result.log_partition == pytest.approx(oracle.log_partition, abs=1e-9)
    assert result.score == pytest.approx(oracle.map_score, abs=1e-9)
    np.testing.assert_allclose(result.probability, oracle.marginals, atol=1e-10)
    assert result.status is lp.result.Status.EXACT
    assert result.log_partition_kind is lp.result.BoundKind.EXACT


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize(("n_sites", "n_labels"), [(3, 2), (9, 2), (6, 3), (4, 6)])
def test_equals_enumeration(structure: str, kind: str, forbidden: float, n_sites: int, n_labels: int) -> None:
    model = random_model(structure, kind, n_sites, n_labels, forbidden=forbidden, seed=n_sites)
    check_exact(lp.infer(potentials(model), Exact()), Enumeration(*model))


@pytest.mark.parametrize("n_labels", [1, 2, 5])
def test_single_site(n_labels: int) -> None:
    unary = np.arange(n_labels, dtype=float)[None]
    result = lp.infer(lp.Potentials.graph(unary, np.zeros((0, 2), int), 0.0), Exact())
    np.testing.assert_allclose(result.probability, np.exp(unary) / np.exp(unary).sum())
    assert result.labels.tolist() == [n_labels - 1]


@pytest.mark.parametrize(("height", "width", "n_labels"), [(1, 50, 3), (50, 1, 3), (6, 7, 3), (10, 100, 2), (60, 9, 2)])
def test_narrow_grids_equal_the_transfer_matrix(height: int, width: int, n_labels: int) -> None:
    grid = random_grid(height, width, n_labels, seed=height)
    check_exact(
        lp.infer(lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical)), Exact()), TransferMatrix(*grid)
    )


@pytest.mark.parametrize(("height", "width", "coupling"), [(3, 3, 0.3), (4, 5, 0.6), (8, 7, 0.44)])
def test_tori_equal_kaufman(height: int, width: int, coupling: float) -> None:
    result = lp.infer(potentials(torus_model(height, width, coupling)), Exact())
    assert result.log_partition == pytest.approx(kaufman_log_partition(height, width, coupling), rel=1e-12)
    np.testing.assert_allclose(result.probability, 0.5, atol=1e-12)


def test_long_chain() -> None:
    model = random_model("chain", n_sites=10_000, n_labels=5, seed=1)
    result = lp.infer(potentials(model), Exact())
    log_partition, marginals = forward_backward(model.unary, model.tables)
    assert result.log_partition == pytest.approx(log_partition, rel=1e-12)
    np.testing.assert_allclose(result.probability, marginals, atol=1e-9)
    assert result.score == pytest.approx(viterbi(model.unary, model.tables)[0], rel=1e-12)


def test_tree() -> None:
    model = random_model("tree", n_sites=300, n_labels=4, forbidden=0.2, seed=2)
    check_exact(lp.infer(potentials(model), Exact()), Tree(*model))


def test_forbidden_pairs() -> None:
    rng = np.random.default_rng(3)
    for seed in range(10):
        model = random_model("grid", n_sites=9, seed=seed, forbidden=0.1)
        model.tables[rng.random(model.tables.shape) < 0.2] = -np.inf
        oracle = Enumeration(*model)
        if oracle.map_score == -np.inf:
            with pytest.raises(lp.InputError, match="forbids"):
                lp.infer(potentials(model), Exact())
        else:
            check_exact(lp.infer(potentials(model), Exact()), oracle)


@pytest.mark.parametrize("labels_left", [1, 2])
def test_model_without_an_allowed_labelling_is_rejected(labels_left: int) -> None:
    unary = np.zeros((2, 2))
    unary[:, labels_left:] = -np.inf
    with pytest.raises(lp.InputError, match="forbids"):
        lp.infer(lp.Potentials.graph(unary, [[0, 1]], np.full((1, 2, 2), -np.inf)), Exact())


def test_masked_sites_are_ignored() -> None:
    grid = random_grid(4, 5, seed=4)
    mask = np.zeros((4, 5), bool)
    mask[1, 2] = mask[3, 4] = True
    masked = lp.infer(lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical), mask=mask), Exact())
    flat = grid.flatten()
    remaining = np.flatnonzero(~mask)
    live = ~mask.ravel()[flat.edges].any(axis=1)
    rest = PairwiseModel(flat.unary[remaining], np.searchsorted(remaining, flat.edges[live]), flat.tables[live])
    oracle = Enumeration(*rest)
    assert masked.log_partition == pytest.approx(oracle.log_partition, abs=1e-10)
    np.testing.assert_allclose(masked.probability[~mask], oracle.marginals, atol=1e-10)
    assert (masked.labels[mask] == -1).all()


def test_table_size_depends_on_allowed_labels() -> None:
    """A complete graph of 12 sites needs 10^12 entries for 10 labels, but 4,096 for two allowed labels per site."""
    model = random_model("full", n_sites=12, n_labels=2, seed=5)
    labels = np.random.default_rng(5).permuted(np.tile(np.arange(10), (12, 1)), axis=1)[:, :2]
    unary = np.full((12, 10), -np.inf)
    np.put_along_axis(unary, labels, model.unary, axis=1)
    tables = np.random.default_rng(6).normal(size=(len(model.edges), 10, 10))
    for e, (i, j) in enumerate(model.edges):
        tables[e][np.ix_(labels[i], labels[j])] = model.tables[e]
    oracle = Enumeration(*model)
    result = lp.infer(lp.Potentials.graph(unary, model.edges, tables), Exact(max_table=4096))
    assert result.log_partition == pytest.approx(oracle.log_partition, abs=1e-10)
    np.testing.assert_allclose(np.take_along_axis(result.probability, labels, axis=1), oracle.marginals, atol=1e-10)
    np.testing.assert_array_equal(result.labels, labels[np.arange(12), oracle.map_labels])


def test_sites_with_one_allowed_label_are_constants() -> None:
    """Only 4 of 90 sites of a complete graph are free, so tables have 4 axes instead of 90."""
    model = random_model("full", n_sites=90, n_labels=2, coupling=0.2, seed=7)
    free = np.array([3, 40, 41, 88])
    seen = np.random.default_rng(8).integers(0, 2, 90)
    model.unary[np.setdiff1d(np.arange(90), free), 1 - np.delete(seen, free)] = -np.inf
    result = lp.infer(potentials(model), Exact(max_table=16))
    pot = potentials(model)
    scores = []
    for y in np.ndindex(2, 2, 2, 2):
        labels = seen.copy()
        labels[free] = y
        scores.append(pot.score(labels))
    assert result.log_partition == pytest.approx(np.logaddexp.reduce(scores), abs=1e-9)
    assert result.score == pytest.approx(max(scores), abs=1e-9)


def test_large_scores_do_not_overflow() -> None:
    model = random_model("grid", n_sites=9, coupling=3000.0, seed=9)
    check_exact(lp.infer(potentials(model), Exact()), Enumeration(*model))


@pytest.mark.parametrize("n_stored", [1, 300, 10_000])
def test_memory_limit_does_not_change_results(monkeypatch: pytest.MonkeyPatch, n_stored: int) -> None:
    """Tables that are recomputed in segments give identical results."""
    model = random_model("grid", n_sites=48, n_labels=2, seed=10)
    expected = lp.infer(potentials(model), Exact())
    monkeypatch.setattr(elimination, "CACHED_ENTRIES", n_stored)
    assert (len(elimination._parts(range(48), [64] * 48, n_stored)) > 1) == (n_stored < 3000)
    result = lp.infer(potentials(model), Exact())
    assert result.log_partition == expected.log_partition
    np.testing.assert_array_equal(result.probability, expected.probability)
    np.testing.assert_array_equal(result.labels, expected.labels)


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    first=st.integers(0, 5),
    capacity=st.integers(1, 5000),
)
def test_parts_cover_a_segment(sizes: list[int], first: int, capacity: int) -> None:
    segment = range(first, first + len(sizes))
    parts = elimination._parts(segment, [0] * first + sizes, capacity)
    assert [t for part in parts for t in part] == list(segment)
    assert all(len(part) for part in parts)
    assert len(parts) <= elimination.PARTS
    if sum(sizes) > capacity and len(sizes) > 1:
        assert len(parts) > 1  # so the recursion ends


@pytest.mark.parametrize("structure", STRUCTURES)
def test_sums_of_exponentials_equal_sums_of_logarithms(monkeypatch: pytest.MonkeyPatch, structure: str) -> None:
    model = random_model(structure, n_sites=9, n_labels=3, coupling=2.0, seed=12)
    linear = lp.infer(potentials(model), Exact())
    monkeypatch.setattr("locpmap.inference.exact.LOG_RANGE", -1.0)
    logarithms = lp.infer(potentials(model), Exact())
    assert linear.log_partition == pytest.approx(logarithms.log_partition, rel=1e-13)
    np.testing.assert_allclose(linear.probability, logarithms.probability, atol=1e-13)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_range_of_tables_is_bounded(structure: str) -> None:
    """No entry of a table is further below the maximum than the bound says."""
    model = random_model(structure, n_sites=8, n_labels=3, coupling=20.0, seed=13)
    pot = potentials(model)
    plan = plan_elimination(pot.structure, [3] * 8, 2**24)
    tables = elimination.Tables(pot.model, np.array([0]), np.ones((8, 3), bool), plan)
    largest = 0.0
    for t, incoming in elimination.forward_backward(tables, elimination.LOG_SUM, np.zeros(1)):
        if incoming is not None:
            table = tables.table(t, incoming, elimination.LOG_SUM)
            largest = max(largest, float(table.max() - table.min()))
    assert largest <= float(tables.log_range[0]) + 1e-9


def test_images_of_large_and_small_range_in_a_batch() -> None:
    grids = [random_grid(3, 3, 2, coupling=coupling, seed=14) for coupling in (1.0, 2000.0, 1.0)]
    unary, horizontal, vertical = (np.stack(part) for part in zip(*grids, strict=True))
    batch = lp.infer(lp.Potentials.grid(unary, (horizontal, vertical)), Exact())
    for n, grid in enumerate(grids):
        assert batch.log_partition[n] == pytest.approx(TransferMatrix(*grid).log_partition, abs=1e-9)
        np.testing.assert_allclose(batch.probability[n], TransferMatrix(*grid).marginals, atol=1e-10)


def test_batch_equals_single_images() -> None:
    grids = [random_grid(4, 3, 3, forbidden=0.2 * (n % 2), seed=n % 7) for n in range(9)]
    unary, horizontal, vertical = (np.stack(part) for part in zip(*grids, strict=True))
    batch = lp.infer(lp.Potentials.grid(unary, (horizontal, vertical)), Exact())
    for n, grid in enumerate(grids):
        alone = lp.infer(lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical)), Exact())
        assert batch.log_partition[n] == alone.log_partition
        np.testing.assert_array_equal(batch.probability[n], alone.probability)
        np.testing.assert_array_equal(batch.labels[n], alone.labels)


def test_precision_follows_the_unary() -> None:
    result = lp.infer(lp.Potentials.grid(np.zeros((2, 2, 2), np.float32), 1.0), Exact())
    assert result.probability.dtype == np.float32


# elimination orders


@pytest.mark.parametrize(("height", "width"), [(5, 40), (40, 5), (12, 12)])
def test_tables_cover_the_narrow_side(height: int, width: int) -> None:
    """A grid needs tables over its shorter side and one more site; the order for a general graph may need another."""
    grid = Grid(height, width)
    for structure, extra in ((grid, 1), (Graph(grid.n_sites, grid.edges()), 2)):
        most = 2 ** (min(height, width) + extra)
        plan = plan_elimination(structure, [2] * grid.n_sites, most)
        assert sorted(plan.order) == list(range(grid.n_sites))
        assert max(plan.sizes) <= most
    with pytest.raises(lp.errors.TooLargeError):
        plan_elimination(grid, [2] * grid.n_sites, 2 ** min(height, width))


def test_tree_tables_cover_one_edge() -> None:
    for structure in ("chain", "star", "tree"):
        model = random_model(structure, n_sites=500, n_labels=7, seed=11)
        plan = plan_elimination(Graph(500, model.edges), [7] * 500, 49)
        assert sorted(plan.order) == list(range(500))
        assert max(plan.sizes) == 49


def test_error_states_the_table_size() -> None:
    with pytest.raises(lp.errors.TooLargeError, match=r"2\^31\.0 entries .* max_table = 16777216 \(2\^24\.0\)"):
        lp.infer(lp.Potentials.grid(np.zeros((30, 30, 2)), 1.0), Exact())
    with pytest.raises(lp.errors.TooLargeError, match=r"2\^20\.0 entries"):
        lp.infer(potentials(random_model("full", n_sites=10, n_labels=4)), Exact(max_table=2**19))
    with pytest.raises(lp.InputError, match="max_table is 0"):
        Exact(max_table=0)


def test_huge_models_are_rejected_quickly() -> None:
    pot = lp.Potentials.grid(np.zeros((1000, 1000, 2)), 1.0)
    start = time.perf_counter()
    with pytest.raises(lp.errors.TooLargeError, match=r"2\^1001"):
        lp.infer(pot, Exact())
    assert time.perf_counter() - start < 20


def test_time_limit_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locpmap.inference.exact.STEP_ENTRIES", 1)
    with pytest.raises(lp.InputError, match="max_seconds"):
        lp.infer(lp.Potentials.grid(np.zeros((4, 4, 2)), 1.0), Exact(), max_seconds=0)


def test_progress_reaches_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locpmap.inference.exact.STEP_ENTRIES", 50)
    seen: list[tuple[int, int]] = []
    pot = lp.Potentials.grid(np.zeros((2, 4, 4, 2)), 1.0)
    lp.infer(pot, Exact(), progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
