"""Likelihoods of sites and blocks, and their gradients: against the definition, differences and one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.oracles.enumeration import Enumeration

from locpmap.arrays import frozen
from locpmap.graphs import Graph, Grid
from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels import likelihood
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.likelihood import Losses, Scores

Array = npt.NDArray[Any]
FAST = ["numba"]


@dataclass(frozen=True)
class Case:
    """The settings of random observations, labels and parameters on a structure; ``blocks`` is None for sites."""

    structure: Grid | Graph
    n_labels: int
    blocks: Any = None
    n_samples: int = 1
    n_unary: int = 1
    n_pairwise: int = 2
    void: float = 0.0
    weighted: bool = False
    shared: str = ""  # "images" and "edges": axes of the pairwise features that have length 1
    dtype: Any = np.float64
    scale: float = 1.0
    n_images: int = 2


def random_graph(n_sites: int, n_edges: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(n_sites, 1), axis=1)
    pairs = rng.permutation(pairs)[:n_edges]
    return Graph(n_sites, np.where(rng.random((n_edges, 1)) < 0.5, pairs, pairs[:, ::-1]))


TREE = Graph(9, [[0, 1], [2, 1], [1, 3], [3, 4], [5, 3], [6, 7], [8, 6], [7, 2]])
SITES = {
    "1x1": Case(Grid(1, 1), 2),
    "1xn": Case(Grid(1, 7), 3, n_unary=2),
    "3x5": Case(Grid(3, 5), 2, void=0.2),
    "three features": Case(Grid(3, 4), 2, n_pairwise=3, weighted=True),
    "no pairwise features": Case(Grid(2, 3), 2, n_pairwise=0),
    "no unary features": Case(Grid(3, 3), 3, n_unary=0),
    "one for all": Case(Grid(3, 4), 2, shared="images edges", void=0.1),
    "one for all images": Case(Grid(3, 4), 3, shared="images"),
    "eight": Case(Grid(4, 3, 8), 3, void=0.2, weighted=True),
    "graph": Case(random_graph(8, 14, 1), 5, weighted=True, n_unary=3),
    "two labels on a graph": Case(random_graph(8, 14, 1), 2, weighted=True, void=0.2),
    "no edges": Case(Graph(4, np.zeros((0, 2), int)), 3),
    "samples": Case(Grid(3, 5), 2, n_samples=3, void=0.2, weighted=True),
    "samples, five labels": Case(random_graph(7, 12, 2), 5, n_samples=3, void=0.2),
}
BLOCKS = {
    "1x1": Case(Grid(1, 1), 2, "rows"),
    "1xn": Case(Grid(1, 7), 3, "rows", n_unary=2),
    "nx1": Case(Grid(6, 1), 2, "rows"),
    "rows": Case(Grid(3, 5), 2, "rows", void=0.2, weighted=True),
    "columns": Case(Grid(4, 3), 5, "columns", n_pairwise=1, shared="edges"),
    "both": Case(Grid(4, 5), 3, "rows+columns", void=0.2, weighted=True),
    "both, two labels": Case(Grid(4, 5), 2, "rows+columns", weighted=True, shared="images edges"),
    "eight": Case(Grid(3, 4, 8), 2, "rows+columns", void=0.1),
    "tiles": Case(Grid(3, 5), 3, (2, 2), void=0.2, weighted=True),
    "eight tiles": Case(Grid(3, 4, 8), 2, (2, 3), void=0.1),
    "trees": Case(TREE, 5, [[0, 1, 2, 3, 4, 5], [6, 7]], void=0.2, weighted=True),
    "two trees in a block": Case(TREE, 5, [[0, 1, 2, 3, 5, 6, 8]]),
    "listed": Case(random_graph(8, 14, 1), 2, [[0, 3, 4], [1, 6]], void=0.1),
    "no edges": Case(Graph(3, np.zeros((0, 2), int)), 3, [[0, 1, 2]]),
    "all": Case(Grid(3, 3), 2, [list(range(9))], weighted=True),
}
CASES = {**{f"sites: {k}": v for k, v in SITES.items()}, **{f"blocks: {k}": v for k, v in BLOCKS.items()}}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@dataclass(frozen=True)
class Problem:
    """The random arrays of a case: features, and the parameters that map them to scores."""

    case: Case
    unary: Array  # (N, S, D)
    features: Array  # (1|N, 1|E, F)
    group: Array
    labels: Array
    samples: Array
    importance: Array
    weights: Array  # (D + 1, L), with the bias in the last row
    tables: Array  # (G, F, L, L)

    @property
    def n_windows(self) -> int:
        """Number of sites or of blocks."""
        return self.labels.shape[1] if self.case.blocks is None else len(self.plan.joint)

    @cached_property
    def plan(self) -> Any:
        return plan_blocks(self.case.blocks, self.case.structure, self.case.n_labels)

    @property
    def edges(self) -> Array:
        return self.case.structure.edges()

    def scores(self, weights: Array, tables: Array) -> Scores:
        """Return the scores of the log-linear model."""
        near = self.case.structure.adjacency()
        unary = self.unary.astype(float) @ weights[:-1] + weights[-1]
        lists = (near.indptr, near.neighbour, near.edge, near.end)
        arrays = (unary.astype(self.case.dtype), self.features, tables[None].astype(self.case.dtype))
        return Scores(*arrays, False, False, self.group, self.edges, *lists)

    def losses(self, backend: Any, scores: Scores, place: Callable[[Any], Any] = lambda array: array) -> Losses:
        """Compute losses and their derivatives by the kernels of a backend."""
        kernels = CpuKernels(backend) if isinstance(backend, str) else backend
        labels, samples, importance = (place(array) for array in (self.labels, self.samples, self.importance))
        scores = Scores(*(part if isinstance(part, bool) else place(part) for part in scores))
        if self.case.blocks is not None:
            return kernels.block_losses(scores, self.plan, labels, importance)
        found = kernels.site_losses(scores, labels, samples, importance)
        return found._replace(slope=kernels.pair_slope(scores, samples, found.residual))

    def evaluate(
        self, backend: Any, weights: Array, tables: Array, place: Callable[[Any], Any] = lambda array: array
    ) -> tuple[float, Array, Array]:
        """Return the value and its gradients with respect to weights and tables."""
        found = self.losses(backend, self.scores(weights, tables), place)
        value, residual, slope = (np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in found)
        by_unary = residual.sum(axis=2, dtype=float).reshape(-1, residual.shape[3])
        rows = np.concatenate([self.unary, np.ones((*self.unary.shape[:2], 1))], axis=2)
        return float(value.sum(dtype=float)), rows.reshape(len(by_unary), -1).T @ by_unary, slope.sum(axis=0)


def draw(case: Case, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    structure, n, n_sites = case.structure, case.n_images, case.structure.n_sites
    edges = structure.edges()
    directions = [h * w for h, w in structure.direction_shapes] if isinstance(structure, Grid) else [len(edges)]
    unary = rng.normal(size=(n, n_sites, case.n_unary)).astype(case.dtype)
    n_rows = 1 if "images" in case.shared else n
    n_columns = 1 if "edges" in case.shared else len(edges)
    features = rng.normal(size=(n_rows, n_columns, case.n_pairwise)).astype(case.dtype)
    group = np.repeat(np.arange(len(directions), dtype=np.int32), directions)
    labels = rng.integers(case.n_labels, size=(n, n_sites)).astype(np.int16)
    labels[rng.random(labels.shape) < case.void] = -1
    samples = labels[:, :, None]
    if case.n_samples > 1:
        samples = rng.integers(-1 if case.void else 0, case.n_labels, (n, n_sites, case.n_samples)).astype(np.int16)
    shape = (n, n_sites) if case.blocks is None else (n,)
    importance = rng.uniform(0.5, 2, shape if case.weighted else (1,) * len(shape))
    weights = case.scale * rng.normal(size=(case.n_unary + 1, case.n_labels))
    tables = case.scale * rng.normal(size=(len(directions), case.n_pairwise, case.n_labels, case.n_labels))
    return Problem(case, unary, frozen(features), group, labels, samples, importance, weights, tables)


# definition


def potentials(problem: Problem, n: int, weights: Array, tables: Array) -> tuple[Array, Array]:
    """Compute the scores of an image by the formula, (S, L) and (E, L, L)."""
    unary = problem.unary[n].astype(float) @ weights[:-1] + weights[-1]
    shape = (len(problem.unary), len(problem.edges), problem.features.shape[2])
    features = np.broadcast_to(problem.features, shape)[n]
    return unary, np.einsum("ef,efab->eab", features.astype(float), tables[problem.group])


def negative_log_conditional(unary: Array, edges: Array, tables: Array, labels: Array, block: Sequence[int]) -> float:
    """Compute ``-log p(y_β | y_¬β)`` by listing all labellings of the block; sites with label -1 are void."""
    inside = [i for i in block if labels[i] >= 0]
    ways = np.indices((unary.shape[1],) * len(inside)).reshape(len(inside), -1).T
    whole = np.tile(labels.astype(int), (len(ways), 1))
    whole[:, inside] = ways
    score = sum((unary[i, whole[:, i]] for i in np.flatnonzero(labels >= 0)), np.zeros(len(ways)))
    for (i, j), table in zip(edges, tables, strict=True):
        if labels[i] >= 0 and labels[j] >= 0:
            score += table[whole[:, i], whole[:, j]]
    true = np.flatnonzero((whole == labels).all(axis=1))[0]
    return float(np.logaddexp.reduce(score) - score[true])


def by_definition(problem: Problem, weights: Array, tables: Array) -> float:
    """Compute the value from the definition of the conditionals."""
    case, total = problem.case, 0.0
    for n, labels in enumerate(problem.labels):
        unary, table = potentials(problem, n, weights, tables)
        if case.blocks is None:
            importance = np.broadcast_to(problem.importance, problem.labels.shape)[n]
            for i in np.flatnonzero(labels >= 0):
                given = problem.samples[n].T.copy()
                given[:, i] = labels[i]
                log_p = [-negative_log_conditional(unary, problem.edges, table, y, [int(i)]) for y in given]
                total += importance[i] * (np.log(len(given)) - np.logaddexp.reduce(log_p))
        else:
            plan = problem.plan
            for first, last in pairwise(plan.ptr):
                loss = negative_log_conditional(unary, problem.edges, table, labels, plan.site[first:last].tolist())
                total += np.broadcast_to(problem.importance, len(problem.labels))[n] * loss
    return total


def check_value(problem: Problem, backend: str) -> None:
    value, _, _ = problem.evaluate(backend, problem.weights, problem.tables)
    assert value == pytest.approx(by_definition(problem, problem.weights, problem.tables), rel=1e-12, abs=1e-12)


@every_case
def test_the_value_matches_the_definition(case: Case) -> None:
    check_value(draw(case), "reference")


def test_a_block_of_all_sites_gives_the_exact_likelihood() -> None:
    problem = draw(BLOCKS["all"])
    exact = 0.0
    for n, labels in enumerate(problem.labels):
        unary, tables = potentials(problem, n, problem.weights, problem.tables)
        model = Enumeration(unary, problem.edges.astype(np.int64), tables)
        score = model.scores[(model.labellings == labels).all(axis=1)][0]
        exact += problem.importance[n] * (model.log_partition - score)
    value, _, _ = problem.evaluate("reference", problem.weights, problem.tables)
    assert value == pytest.approx(exact, rel=1e-10)


def test_the_loss_of_rows_and_columns_is_their_sum() -> None:
    problems = [draw(replace(BLOCKS["both"], blocks=blocks)) for blocks in ("rows+columns", "rows", "columns")]
    both, rows, columns = (problem.evaluate("reference", problem.weights, problem.tables)[0] for problem in problems)
    assert both == pytest.approx(rows + columns, rel=1e-12)


def test_blocks_of_one_site_are_equivalent_to_sites() -> None:
    sites = draw(Case(Grid(3, 4, 8), 3, void=0.2))
    blocks = draw(Case(Grid(3, 4, 8), 3, (1, 1), void=0.2))
    one = sites.evaluate("reference", sites.weights, sites.tables)
    other = blocks.evaluate("reference", sites.weights, sites.tables)
    np.testing.assert_allclose(one[0], other[0], rtol=1e-12)
    np.testing.assert_allclose(one[1], other[1], atol=1e-12)
    np.testing.assert_allclose(one[2], other[2], atol=1e-12)


# gradients


def check_gradients(problem: Problem, backend: str, value: Callable[[Array, Array], float]) -> None:
    """Compare gradients with central differences, one parameter at a time."""
    _, slope, table_slope = problem.evaluate(backend, problem.weights, problem.tables)
    flat = np.concatenate([problem.weights.ravel(), problem.tables.ravel()])
    size, step = problem.weights.size, 1e-5
    numeric = []
    for p in range(len(flat)):
        sides = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[p] += sign * step
            sides.append(value(moved[:size].reshape(problem.weights.shape), moved[size:].reshape(problem.tables.shape)))
        numeric.append((sides[0] - sides[1]) / (2 * step))
    found = np.concatenate([slope.ravel(), table_slope.ravel()])
    np.testing.assert_allclose(found, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max(initial=1e-3))


@every_case
def test_gradients_match_difference_quotients(case: Case) -> None:
    problem = draw(case)
    check_value(problem, "numba")
    check_gradients(problem, "reference", lambda weights, tables: problem.evaluate("numba", weights, tables)[0])


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.n_samples == 1])  # log-means are not concave
def test_the_value_is_convex_in_the_parameters(case: Case) -> None:
    problem, rng = draw(case), np.random.default_rng(5)
    middle = problem.evaluate("numba", problem.weights, problem.tables)[0]
    for length in (0.1, 1.0, 10.0):
        step, table_step = rng.normal(size=problem.weights.shape), rng.normal(size=problem.tables.shape)
        ends = [
            problem.evaluate("numba", problem.weights + t * step, problem.tables + t * table_step)[0]
            for t in (-length, length)
        ]
        assert sum(ends) / 2 >= middle * (1 - 1e-12)


# backends


def check_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Compare arrays with a tolerance relative to the largest entry, since sums of either sign cancel."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max(initial=1.0))


@pytest.mark.parametrize("backend", FAST)
@every_case
def test_backends_agree(case: Case, backend: str) -> None:
    problem = draw(case)
    expected = problem.evaluate("reference", problem.weights, problem.tables)
    check_same(problem.evaluate(backend, problem.weights, problem.tables), expected)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("case", [SITES["3x5"], SITES["eight"], BLOCKS["rows"], BLOCKS["both, two labels"]])
def test_single_precision_scores_are_processed_in_double_precision(case: Case, backend: str) -> None:
    single = draw(replace(case, dtype=np.float32))
    scores = single.scores(single.weights, single.tables)
    double = Scores(*(part.astype(float) if k < 3 else part for k, part in enumerate(scores)))
    expected = single.losses("reference", double)
    for name in ("reference", backend):
        found = single.losses(name, scores)
        assert found.value.dtype == found.residual.dtype == np.float32
        for one, other in zip(found[:2], expected[:2], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found.slope, expected.slope, rtol=1e-5, atol=1e-5)  # computed from rounded residuals


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("case", [SITES["3x5"], SITES["samples"], SITES["graph"], BLOCKS["both"], BLOCKS["tiles"]])
def test_jobs_add_up_to_the_full_value(case: Case, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(replace(case, n_images=3))
    whole = problem.evaluate(backend, problem.weights, problem.tables)
    for sites in (4, problem.labels.shape[1]):
        monkeypatch.setattr(likelihood, "JOB_SITES", sites)
        check_same(problem.evaluate(backend, problem.weights, problem.tables), whole)


def forms(problem: Problem) -> dict[str, Scores]:
    """Return the other forms of pairwise scores: tables or Potts weights, per edge or shared, per image or shared."""
    scores, rng, n_labels = problem.scores(problem.weights, problem.tables), np.random.default_rng(3), 3
    n_images, n_edges = len(problem.labels), len(problem.edges)
    per_edge = scores._replace(group=np.arange(n_edges, dtype=np.int32), features=np.ones((1, 1, 1)), own_tables=True)
    none = np.empty((0, 0, 0, n_labels, n_labels))
    potts = scores._replace(potts=True, tables=none)
    return {
        "a table per edge and image": per_edge._replace(tables=rng.normal(size=(n_images, n_edges, 1, 3, 3))),
        "a table per edge": per_edge._replace(tables=rng.normal(size=(1, n_edges, 1, 3, 3))),
        "a weight per edge and image": potts._replace(features=rng.normal(size=(n_images, n_edges, 1))),
        "a weight per edge": potts._replace(features=rng.normal(size=(1, n_edges, 1))),
        "a weight for all": potts._replace(features=rng.normal(size=(1, 1, 1))),
    }


FORMS = (
    "a table per edge and image",
    "a table per edge",
    "a weight per edge and image",
    "a weight per edge",
    "a weight for all",
)
FORMED = {
    "sites": Case(Grid(3, 4), 3, n_samples=3, void=0.2, weighted=True),
    "one sample": Case(Grid(3, 4), 3, void=0.2),
    "rows and columns": Case(Grid(3, 4), 3, "rows+columns", void=0.2, weighted=True),
    "tiles": Case(Grid(3, 4), 3, (2, 2), void=0.2),
}


def check_forms(case: Case, form: str, backend: Any, place: Callable[[Any], Any] = lambda array: array) -> None:
    """Compare a backend with the reference, and the reference with difference quotients at five entries."""
    problem = draw(case)
    scores = forms(problem)[form]
    expected = problem.losses("reference", scores)
    found = problem.losses(backend, scores, place)
    check_same(tuple(np.asarray(part.cpu() if hasattr(part, "cpu") else part) for part in found), expected)
    name = "features" if scores.potts else "tables"
    given, rng = getattr(scores, name), np.random.default_rng(4)
    for index in rng.permutation(given.size)[:5]:
        sides = []
        for sign in (1, -1):
            moved = given.copy()
            moved.reshape(-1)[index] += sign * 1e-5
            sides.append(problem.losses("numba", scores._replace(**{name: moved})).value.sum())
        assert expected.slope is not None
        slope = expected.slope[..., None] if scores.potts else expected.slope
        while (extra := [a for a in range(given.ndim) if slope.shape[a] > given.shape[a]]) != []:
            slope = slope.sum(axis=extra[0], keepdims=True)
        assert slope.reshape(-1)[index] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", FORMED.values(), ids=FORMED.keys())
def test_all_forms_of_pairwise_scores_are_supported(case: Case, form: str) -> None:
    check_forms(case, form, "numba")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", FORMED.values(), ids=FORMED.keys())
def test_two_labels_match_three_with_one_forbidden(case: Case, form: str) -> None:
    """Two labels are equivalent to three labels of which the third is forbidden."""
    problem = draw(case)
    scores = forms(problem)[form]
    unary = scores.unary.copy()
    unary[..., 2] = -np.inf
    problem = replace(problem, labels=np.minimum(problem.labels, 1), samples=np.minimum(problem.samples, 1))
    tables = np.ascontiguousarray(scores.tables[..., :2, :2])
    two = scores._replace(unary=np.ascontiguousarray(unary[..., :2]), tables=tables)
    three, found = problem.losses("numba", scores._replace(unary=unary)), problem.losses("numba", two)
    check_same((found.value, found.residual), (three.value, three.residual[..., :2]))
    check_same((found.slope,), (three.slope if scores.potts else three.slope[..., :2, :2],))


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize(
    "case",
    [
        *(SITES[name] for name in ("3x5", "eight", "samples", "samples, five labels")),
        *(BLOCKS[name] for name in ("both", "rows", "tiles", "trees")),
    ],
)
def test_extreme_scores_stay_finite(case: Case, backend: str) -> None:
    """Probabilities of exp(-10000) underflow; their logarithms do not."""
    problem = draw(replace(case, scale=1e4))
    found = problem.evaluate(backend, problem.weights, problem.tables)
    assert all(np.isfinite(part).all() for part in found)
    assert found[0] == pytest.approx(by_definition(problem, problem.weights, problem.tables), rel=1e-12)
    # With such weights every conditional is 0 or 1 and the value is piecewise linear and homogeneous.
    linear = (found[1] * problem.weights).sum() + (found[2] * problem.tables).sum()
    assert linear == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("case", [SITES["3x5"], BLOCKS["rows"], BLOCKS["tiles"]])
def test_void_images_contribute_nothing(case: Case, backend: str) -> None:
    problem = draw(replace(case, void=1.0))
    for part in problem.evaluate(backend, problem.weights, problem.tables):
        np.testing.assert_array_equal(part, 0)
