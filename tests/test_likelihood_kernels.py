"""Likelihoods of sites and blocks, and their gradients: against the definition, differences and one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.support.likelihoods import (
    BLOCKS,
    FORMED,
    FORMS,
    SITES,
    Array,
    Case,
    Problem,
    check_forbidden,
    check_same,
    compare_forms,
    draw,
    forms,
)

from locpmap.graphs import Grid
from locpmap.kernels import likelihood
from locpmap.kernels.likelihood import Part, Scores
from locpmap.kernels.numba.pair_gradient import pair_gradient

FAST = ["numba"]
CASES = {**{f"sites: {k}": v for k, v in SITES.items()}, **{f"blocks: {k}": v for k, v in BLOCKS.items()}}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


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
    _, gradient, table_gradient = problem.evaluate(backend, problem.weights, problem.tables)
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
    found = np.concatenate([gradient.ravel(), table_gradient.ravel()])
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
        np.testing.assert_allclose(
            found.gradient, expected.gradient, rtol=1e-5, atol=1e-5
        )  # computed from rounded residuals


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("case", [SITES["3x5"], SITES["samples"], SITES["graph"], BLOCKS["both"], BLOCKS["tiles"]])
def test_jobs_add_up_to_the_full_value(case: Case, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(replace(case, n_images=3))
    whole = problem.evaluate(backend, problem.weights, problem.tables)
    for sites in (4, problem.labels.shape[1]):
        monkeypatch.setattr(likelihood, "JOB_SITES", sites)
        check_same(problem.evaluate(backend, problem.weights, problem.tables), whole)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", FORMED.values(), ids=FORMED.keys())
def test_all_forms_of_pairwise_scores_are_supported(case: Case, form: str) -> None:
    """Compare Numba with the reference, and the reference with difference quotients at five entries."""
    problem = draw(case)
    scores = forms(problem)[form]
    expected = compare_forms(problem, scores, "numba")
    name = "features" if scores.potts else "tables"
    given, rng = getattr(scores, name), np.random.default_rng(4)
    for index in rng.permutation(given.size)[:5]:
        sides = []
        for sign in (1, -1):
            moved = given.copy()
            moved.reshape(-1)[index] += sign * 1e-5
            sides.append(problem.losses("numba", scores._replace(**{name: moved})).value.sum())
        assert expected.gradient is not None
        gradient = expected.gradient[..., None] if scores.potts else expected.gradient
        while (extra := [a for a in range(given.ndim) if gradient.shape[a] > given.shape[a]]) != []:
            gradient = gradient.sum(axis=extra[0], keepdims=True)
        assert gradient.reshape(-1)[index] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6, abs=1e-6)


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
    check_same((found.gradient,), (three.gradient if scores.potts else three.gradient[..., :2, :2],))


@pytest.mark.parametrize("form", ["a table per edge", "a table per edge and image", "a weight per edge"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_part_writes_the_gradient_of_its_own_edges_only(n_labels: int, form: str) -> None:
    """Threads share one gradient if every edge has its own scores, also if there is a single image."""
    problem = draw(replace(FORMED["one sample"], n_images=1, void=0.0))
    scores = forms(problem)[form]
    tables = np.ascontiguousarray(scores.tables[..., :n_labels, :n_labels])
    scores = scores._replace(unary=np.ascontiguousarray(scores.unary[..., :n_labels]), tables=tables)
    samples, rng = np.minimum(problem.samples, n_labels - 1), np.random.default_rng(0)
    residual = rng.normal(size=(1, 12, 1, n_labels))
    gradient = np.full_like(scores.new_gradient(), -0.0)  # adding 0 would clear the sign
    pair_gradient(scores, samples, residual, None, gradient, Part(0, 1, 3, 7))
    written = ~(np.signbit(gradient) & (gradient == 0)).reshape(17, -1).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(written), np.arange(3, 7))


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
@pytest.mark.parametrize("name", ["3x5", "eight", "samples", "samples, five labels"])
def test_a_forbidden_true_label_has_an_infinite_loss(name: str, backend: str) -> None:
    check_forbidden(SITES[name], backend)


@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("case", [SITES["3x5"], BLOCKS["rows"], BLOCKS["tiles"]])
def test_void_images_contribute_nothing(case: Case, backend: str) -> None:
    problem = draw(replace(case, void=1.0))
    for part in problem.evaluate(backend, problem.weights, problem.tables):
        np.testing.assert_array_equal(part, 0)
