"""Mean field: the fixed point, the bound, and the fast softmax kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from scipy.special import softmax as exact_softmax
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import KINDS, STRUCTURES, random_model
from tests.oracles.transfer_matrix import TransferMatrix
from tests.support.decoding import check_identical, problem_of
from tests.support.odd_models import FORBIDDEN, ODD, normal

from locpmap.errors import InputError
from locpmap.inference import infer
from locpmap.inference.mean_field import MeanField
from locpmap.kernels.model import CHANGED
from locpmap.kernels.numba.bits import all_zero
from locpmap.kernels.numba.softmax_rows import softmax
from locpmap.kernels.placement import BACKENDS
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Status

CONVERGED = MeanField(tolerance=1e-12, max_sweeps=2_000)


def in_single_precision(pot: Potentials) -> Potentials:
    weights = pot.pairwise.weights
    assert weights is not None
    shapes = [(h, w) for h, w in pot.structure.direction_shapes]
    return Potentials.grid(
        pot.unflatten(pot.unary).astype(np.float32),
        tuple(
            np.broadcast_to(w, (len(w), h * v)).reshape(-1, h, v)[0] for w, (h, v) in zip(weights, shapes, strict=True)
        ),
    )


# kernels compared with the reference


@pytest.mark.parametrize("case", [*ODD, "single precision"])
def test_operations_agree_with_the_reference(case: str) -> None:
    pot = in_single_precision(ODD["primes"]) if case == "single precision" else ODD[case]
    # Where every pair is forbidden, scores are as large as the finite substitute for -inf.
    rtol = 1e-6 if case in ("single precision", "nothing allowed") else 1e-12
    outcomes = []
    for backend in BACKENDS:
        problem = problem_of(pot, backend)
        decoder = MeanField(tolerance=1e-7, start="unary")
        state = decoder.init(problem)
        for _ in range(3):
            decoder.step(problem, state)
        outcomes.append((state.beliefs.copy(), state.marks.copy(), decoder.finish(problem, state)))
    (reference, reference_marks, expected), (beliefs, marks, outcome) = outcomes
    assert np.isfinite(reference).all()
    np.testing.assert_allclose(beliefs, reference, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(marks, reference_marks)
    assert expected.log_partition is not None
    assert not np.isnan(expected.log_partition).any()
    np.testing.assert_allclose(outcome.log_partition, expected.log_partition, rtol=rtol)


@pytest.mark.parametrize("weight", [-1e30, 1e30])
def test_large_finite_scores_are_not_forbidden(weight: float) -> None:
    """They are not confused with the substitute for -inf, as weights or as tables, on either backend."""
    unary = abs(weight) * np.random.default_rng(0).normal(size=(1, 4, 3))
    results = [
        infer(Potentials.grid(unary, pairwise), MeanField(), backend=backend)
        for pairwise in (weight, weight * np.eye(3))
        for backend in BACKENDS
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.probability, results[0].probability)
    assert results[0].labels.tolist() == coordinate_ascent(unary, weight)


def coordinate_ascent(unary: np.ndarray, weight: float) -> list[list[int]]:
    """Return the labels of coordinate ascent in red-black order from uniform beliefs, the limit of large scores."""
    q = np.full((4, 3), 1 / 3)
    for _ in range(10):
        for i in (0, 2, 1, 3):
            scores = unary[0, i] + weight * sum(q[j] for j in (i - 1, i + 1) if 0 <= j < 4)
            q[i] = np.eye(3)[scores.argmax()]
    return [q.argmax(axis=1).tolist()]


@njit
def softmax_rows(rows: np.ndarray) -> None:
    for row in rows:
        softmax(row)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 8, 21, 64])
def test_softmax(dtype: Any, n_labels: int) -> None:
    """Errors are a few units in the last place, from the exponentials and their sum."""
    scores = np.random.default_rng(n_labels).normal(size=(200, n_labels)) * np.geomspace(1e-3, 30, 200)[:, None]
    scores[::7, 0] = FORBIDDEN if n_labels > 1 else 0
    scores = scores.astype(dtype)
    rows = scores.copy()
    softmax_rows(rows)
    below = scores - scores.max(axis=1, keepdims=True)  # rounded as in the kernel
    error = (4 + n_labels / 2) * np.finfo(dtype).eps
    np.testing.assert_allclose(rows, exact_softmax(below.astype(np.float64), axis=1), rtol=error, atol=1e-37)
    assert (rows[scores == FORBIDDEN] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_extreme_scores(dtype: Any) -> None:
    rows = np.array(
        [[0, -87, -88, -104, -1e9], [3e8, -3e8, FORBIDDEN, 0, 1], [-1e30, FORBIDDEN, FORBIDDEN, -1e30, FORBIDDEN]],
        dtype,
    )
    softmax_rows(rows)
    expected = [[1, np.exp(-87), 0, 0, 0], [1, 0, 0, 0, 0], [0.5, 0, 0, 0.5, 0]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-37)


# the fixed point and the bound


@pytest.mark.parametrize("case", [case for case in ODD if case not in ("nothing allowed", "forbidden pairs")])
def test_result_is_a_fixed_point(case: str) -> None:
    """Check ``q_i = softmax(unary_i + Σ_j table · q_j)`` at every site."""
    pot = ODD[case]
    result = infer(pot, CONVERGED)
    assert result.status is Status.CONVERGED
    q = result.probability.reshape(pot.unary.shape)
    model = pot.model
    for n in range(pot.n_images):
        scores = pot.unary[n].astype(np.float64)
        for e, (i, j) in enumerate(model.edges):
            features = model.features[n % len(model.features), e % model.features.shape[1]]
            tables = model.tables[n % len(model.tables), e % model.tables.shape[1]]
            table = np.tensordot(features, tables, axes=1)
            scores[i] += table @ q[n, j]
            scores[j] += table.T @ q[n, i]
        np.testing.assert_allclose(q[n], exact_softmax(scores, axis=1), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_bound_holds_and_rises_with_every_sweep(structure: str, kind: str) -> None:
    for seed, coupling in enumerate((0.5, 2.0, 8.0)):
        model = random_model(structure, kind, 6, 3, coupling=coupling, forbidden=0.1, seed=seed)
        exact, pot = Enumeration(*model).log_partition, Potentials.graph(*model)
        results = [infer(pot, MeanField(tolerance=0, max_sweeps=n), n_threads=1) for n in (1, 2, 3, 4, 8, 100)]
        bounds = [result.log_partition for result in results]
        slack = 1e-9 * max(1, abs(exact))
        assert bounds[-1] <= exact + slack
        assert (np.diff(bounds) >= -slack).all()
        assert results[0].log_partition_kind is BoundKind.LOWER


def test_bound_equals_its_definition() -> None:
    """The bound is E_q[score] + entropy, here by enumeration of the product distribution."""
    model = random_model("cycle", "random", 5, 3, coupling=1.5, seed=1)
    exact = Enumeration(*model)
    result = infer(Potentials.graph(*model), MeanField(max_sweeps=2))
    q = np.prod([p[labels] for p, labels in zip(result.probability, exact.labellings.T, strict=True)], axis=0)
    assert result.log_partition == pytest.approx((q * (exact.scores - np.log(q))).sum(), rel=1e-12)


def test_bound_holds_in_single_precision() -> None:
    """With many confident sites, beliefs that do not sum exactly to 1 would violate the bound."""
    rng = np.random.default_rng(3)
    unary = (20 + 6 * rng.normal(size=(200, 3, 2))).astype(np.float32)
    pot = Potentials.grid(unary, 0.05)
    tables = [np.broadcast_to(0.05 * np.eye(2), shape) for shape in ((200, 2, 2, 2), (199, 3, 2, 2))]
    exact = TransferMatrix(unary.astype(np.float64), tables[0], tables[1]).log_partition
    bound = infer(pot, MeanField()).log_partition
    assert bound <= exact
    assert bound == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_without_edges_mean_field_is_exact(scale: float) -> None:
    """This includes unaries far below the tolerance, because the first update is always applied."""
    unary = normal(4, 3, scale=scale)
    result = infer(Potentials.graph(unary, [], 1.0), MeanField())
    np.testing.assert_allclose(result.probability, exact_softmax(unary, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(result.labels, unary.argmax(axis=1))
    assert result.log_partition == pytest.approx(np.logaddexp.reduce(unary, axis=1).sum(), rel=1e-14)


def test_single_precision_beliefs_sum_to_one_in_the_bound() -> None:
    """Scores far from 0 would amplify any difference of the sum from 1."""
    unary = (1000 + normal(50, 3)).astype(np.float32)
    result = infer(Potentials.grid(unary[None], 0.0), MeanField())
    exact = np.logaddexp.reduce(unary.astype(np.float64), axis=1).sum()
    assert result.log_partition == pytest.approx(exact, rel=1e-13)


def test_skipping_unchanged_sites_has_no_effect() -> None:
    """With tolerance 0, skipping gives the same beliefs as updating every site in every sweep, bit for bit."""
    pot = Potentials.grid(normal(9, 11, 4), (normal(9, 10), normal(8, 11)))
    problem = problem_of(pot, "numba")
    decoder = MeanField(tolerance=0)
    lazy, full = decoder.init(problem), decoder.init(problem)
    for _ in range(30):
        decoder.step(problem, lazy)
        full.marks[:] |= CHANGED
        decoder.step(problem, full)
        assert lazy.beliefs.tobytes() == full.beliefs.tobytes()
    assert 0 < lazy.marks.sum() < lazy.marks.size


def test_single_precision_unaries_with_a_table() -> None:
    """Sums over tables use double precision; the result has the precision of the unaries."""
    unary, table = normal(3, 4, 3).astype(np.float32), normal(3, 3)
    single, double = (infer(Potentials.grid(u, table), MeanField()) for u in (unary, unary.astype(np.float64)))
    assert single.probability.dtype == np.float32
    np.testing.assert_allclose(single.probability, double.probability, atol=1e-7)
    assert single.log_partition == pytest.approx(double.log_partition, rel=1e-12)


def test_tolerance_limits_the_error() -> None:
    pot = ODD["primes"]
    rough, fine = infer(pot, MeanField(tolerance=1e-4)), infer(pot, CONVERGED)
    assert rough.n_sweeps < fine.n_sweeps
    np.testing.assert_allclose(rough.probability, fine.probability, atol=1e-3)


def test_splitting_scores_differently_has_no_effect() -> None:
    """From a uniform start, moving scores between unaries and tables changes no iterate."""
    rng = np.random.default_rng(5)
    unary, edges, tables = random_model("grid", "random", 6, 3, seed=5)
    moved, shifted = unary.copy(), tables.copy()
    for e, (i, j) in enumerate(edges):
        at_i, at_j = 3 * rng.normal(size=(2, 3))
        moved[i] -= at_i
        moved[j] -= at_j
        shifted[e] += at_i[:, None] + at_j
    for max_sweeps in (1, 2, 50):
        one, other = (
            infer(Potentials.graph(u, edges, t), MeanField(max_sweeps=max_sweeps))
            for u, t in ((unary, tables), (moved, shifted))
        )
        np.testing.assert_allclose(one.probability, other.probability, atol=1e-9)
        assert one.log_partition == pytest.approx(other.log_partition, rel=1e-12)


# forbidden and extreme scores


def test_pairs_that_must_agree() -> None:
    """Initially all labels have forbidden neighbours; the least forbidden one wins, and the result is allowed."""
    table = np.where(np.eye(2, dtype=bool), 0.0, FORBIDDEN)
    unary = np.array([[1.0, 0.0], [0.0, 0.5], [0.3, 0.0], [0.0, 0.2]])
    result = infer(Potentials.graph(unary, [[0, 1], [1, 2], [2, 3]], table), MeanField())
    assert len(np.unique(result.labels)) == 1
    assert result.log_partition == pytest.approx(unary[:, result.labels[0]].sum(), abs=1e-9)
    assert result.log_partition <= np.logaddexp.reduce(unary.sum(axis=0))


def test_remaining_forbidden_mass_gives_no_bound() -> None:
    result = infer(ODD["nothing allowed"], MeanField())
    assert result.log_partition == FORBIDDEN
    assert np.isfinite(result.probability).all()


@pytest.mark.parametrize("case", ["far apart", "far apart, tables", "forbidden pairs"])
def test_extreme_scores_stay_finite(case: str) -> None:
    result = infer(ODD[case], MeanField())
    assert np.isfinite(result.probability).all()
    np.testing.assert_allclose(result.probability.sum(axis=-1), 1, atol=1e-12)
    assert not np.isnan(result.log_partition)


# threads, batches, options


@pytest.mark.parametrize("case", ["batch", "factored", "table per edge and image", "primes"])
def test_results_do_not_depend_on_threads(case: str) -> None:
    one, *others = (infer(ODD[case], MeanField(), n_threads=n) for n in (1, 2, 3))
    for other in others:
        check_identical(one, other)


def test_batch_equals_single_images() -> None:
    unary, right, down = normal(3, 4, 5, 3), normal(3, 4, 4), normal(3, 3, 5)
    batch = infer(Potentials.grid(unary, (right, down)), MeanField())
    for n in range(3):
        alone = infer(Potentials.grid(unary[n], (right[n], down[n])), MeanField())
        assert alone.probability.tobytes() == batch.probability[n].tobytes()
        assert alone.log_partition == batch.log_partition[n]


@pytest.mark.parametrize("options", [{"max_sweeps": 0}, {"tolerance": -1e-3}, {"start": "random"}], ids=str)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        MeanField(**options)


def test_sweep_limit_is_reported() -> None:
    result = infer(ODD["primes"], MeanField(max_sweeps=2))
    assert (result.status, result.n_sweeps) == (Status.MAX_SWEEPS, 2)


def test_one_marked_site_continues_the_sweeps() -> None:
    """Of two sites, at most one is marked after a sweep; the last one alone is marked after the first sweep."""
    unary = np.array([[[2.0, 0.0], [0.0, 0.3]]])
    for first, weight in ((unary, 1.0), (unary[:, ::-1], 1.0), (unary, -1.5)):
        result = infer(Potentials.grid(first, weight), CONVERGED)
        q = result.probability[0]
        np.testing.assert_allclose(q, exact_softmax(first[0] + weight * q[::-1], axis=1), atol=1e-9)
        assert result.n_sweeps > 2


@pytest.mark.parametrize("place", [0, 6, 63, 64, 99])
def test_a_single_mark_is_found_anywhere(place: int) -> None:
    marks = np.zeros(100, np.uint8)
    assert all_zero.py_func(marks)
    marks[place] = 1
    assert not all_zero.py_func(marks)
