"""Message passing: loopy belief propagation, max-product, tree reweighting, perturb-and-max-product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from tests.oracles.chains import Tree, forward_backward, viterbi
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import KINDS, STRUCTURES, PairwiseModel, random_model
from tests.oracles.statistics import chi_square_p_value
from tests.support.decoding import check_identical, problem_of
from tests.support.messages import initial_messages, states_after
from tests.support.odd_models import FORBIDDEN, GRAPH, ODD, normal

from locpmap.errors import InputError
from locpmap.inference import infer
from locpmap.inference.lbp import LBP
from locpmap.inference.max_product import MaxProduct
from locpmap.inference.perturb_and_max_product import PerturbAndMaxProduct
from locpmap.inference.trw import TRW
from locpmap.kernels import message_plan
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.message_plan import linear_domain
from locpmap.kernels.placement import BACKENDS
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.messages import cavity, send
from locpmap.kernels.trees import spanning_forests
from locpmap.noise import key_of
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Result, Status


def on_tables(unary: np.ndarray, edges: np.ndarray, pairwise: Any) -> Potentials:
    return Potentials.graph(unary, edges, np.asarray(pairwise))


# kernels compared with the reference


@pytest.mark.parametrize(
    ("maximise", "reweighted", "damping"),
    [(False, False, 0.0), (False, True, 0.3), (True, False, 0.3), (True, True, 0.3)],
)
@pytest.mark.parametrize("case", ODD)
def test_pass_messages_and_its_readers(case: str, maximise: bool, reweighted: bool, damping: float) -> None:
    pot = ODD[case]
    forests, rho = spanning_forests(pot.model, 3)
    rho = rho if reweighted else np.ones(len(rho))
    reference, state = (states_after(pot, backend, maximise, rho, damping) for backend in BACKENDS)
    assert not np.isnan(reference.messages).any()
    scale = np.abs(reference.messages[np.isfinite(reference.messages)]).max(initial=1.0)
    if pot.n_labels > 1:  # with one label, a message is only a constant
        np.testing.assert_allclose(state.messages, reference.messages, rtol=1e-12, atol=1e-13 * scale)
        np.testing.assert_array_equal(state.dirty, reference.dirty)
    for backend in BACKENDS:
        kernels = CpuKernels(backend)
        if maximise and not reweighted:
            labels, terms = kernels.decode_messages(pot.view, reference), np.zeros((pot.n_images, pot.n_sites))
            kernels.sweep("score_terms", pot.model, labels, terms)
            got: tuple[np.ndarray, ...] = (labels, terms)
            np.testing.assert_allclose(terms.sum(axis=1), np.atleast_1d(pot.score(pot.unflatten(labels))), rtol=1e-12)
        elif reweighted:
            orders, parents = (np.stack(arrays) for arrays in zip(*forests, strict=True))
            reference.forests = orders, parents
            got = (kernels.forest_log_partitions(pot.view, reference, maximise=maximise),)
        else:
            beliefs, _ = kernels.log_beliefs(pot.view, reference)
            got = (kernels.bethe_edges(pot.view, reference, beliefs),)
        if backend == "reference":
            expected = got
    for actual, desired in zip(got, expected, strict=True):
        assert not np.isnan(desired).any()
        np.testing.assert_allclose(actual, desired, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("case", [case for case in ODD if linear_domain(ODD[case].model)[1].all()])
def test_pass_linear(case: str) -> None:
    pot = ODD[case]
    couplings, linear = linear_domain(pot.model)
    weights = np.exp(pot.unary - pot.unary.max(axis=2, keepdims=True))
    states = []
    for backend in BACKENDS:
        state = initial_messages(pot, False, np.ones(len(pot.model.edges)))
        state.messages[:], state.linear = 1, linear
        for _ in range(3):
            CpuKernels(backend)._pass("pass_linear", pot.model, state, weights, couplings, 0.2, 1e-9)
        states.append(state)
    np.testing.assert_allclose(states[1].messages, states[0].messages, rtol=1e-12)
    np.testing.assert_array_equal(states[1].dirty, states[0].dirty)
    logs = states_after(pot, "reference", False, np.ones(len(pot.model.edges)), 0.2)
    if pot.n_labels > 1:
        np.testing.assert_allclose(np.log(states[0].messages), logs.messages, atol=1e-12)


@pytest.mark.parametrize("weight", [-60.0, 60.0])
def test_linear_domain_is_accurate_for_large_scores(weight: float) -> None:
    """Sites have one dominant label, which their neighbours must not (or must) share."""
    unary = normal(9, 3, scale=60.0)
    chain = np.stack([np.arange(8), np.arange(1, 9)], axis=1)
    pot = Potentials.graph(unary, chain, weight)
    assert linear_domain(pot.model)[1].all()
    log_partition, marginals = forward_backward(unary, np.broadcast_to(weight * np.eye(3), (8, 3, 3)))
    result = infer(pot, LBP())
    np.testing.assert_allclose(result.probability, marginals, rtol=1e-9, atol=1e-300)
    assert result.log_partition == pytest.approx(log_partition, rel=1e-13)


def test_models_outside_the_linear_domain() -> None:
    outside = {case for case in ODD if not linear_domain(ODD[case].model)[1].all()}
    assert outside == {"forbidden pairs", "nothing allowed", "far apart", "far apart, tables"}


@pytest.mark.parametrize("weight", [-1e6, -800.0, -40.0, -1e-9, 0.0, 1e-9, 40.0, 499.0, 501.0, 800.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("maximise", [False, True])
def test_potts_messages_equal_table_messages(weight: float, spread: float, maximise: bool) -> None:
    """The O(L) formulas agree with the definition where cancellation or underflow could occur."""
    unary = np.array([[0.0, -0.3, -0.7, -1.0], [0.1, 0.0, 0.2, 0.3]]) * spread
    pot = Potentials.graph(unary, [[0, 1]], weight)
    state = states_after(pot, "numba", maximise, np.ones(1), 0.0, tolerance=0.0)
    expected, _ = send(unary[0], weight * np.eye(4), maximise)
    rounding = 4 * np.finfo(float).eps * (1 + spread + abs(weight))  # of the definition, which subtracts large numbers
    np.testing.assert_allclose(state.messages[0, 1], expected, rtol=1e-13, atol=rounding)


# exact where there is no cycle


def random_tree(n_sites: int, n_labels: int, seed: int, scale: float = 1.0) -> PairwiseModel:
    model = random_model("tree", "random", n_sites, n_labels, coupling=2.0 * scale, forbidden=0.2, seed=seed)
    return model._replace(unary=scale * model.unary)


@pytest.mark.parametrize("n_labels", [2, 5])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize(
    "decoder", [LBP(), TRW(), LBP(schedule="coloured", tolerance=1e-11)], ids=lambda d: f"{d.name} {d.schedule}"
)
def test_sum_product_is_exact_on_trees(decoder: LBP | TRW, scale: float, n_labels: int) -> None:
    for seed in range(3):
        model = random_tree(60, n_labels, seed, scale)
        exact = Tree(*model)
        result = infer(Potentials.graph(*model), decoder)
        assert result.status is Status.CONVERGED
        np.testing.assert_allclose(result.probability, exact.marginals, atol=1e-8)
        assert result.log_partition == pytest.approx(exact.log_partition, rel=1e-10)


@pytest.mark.parametrize("decoder", [LBP(), TRW()], ids=lambda d: d.name)
def test_long_chain_needs_one_sweep_forward_and_backward(decoder: LBP | TRW) -> None:
    n_sites, n_labels = 2_000, 3
    unary, tables = normal(n_sites, n_labels), normal(n_sites - 1, n_labels, n_labels, scale=2)
    log_partition, marginals = forward_backward(unary, tables)
    chain = np.stack([np.arange(n_sites - 1), np.arange(1, n_sites)], axis=1)
    result = infer(Potentials.graph(unary, chain, tables), replace(decoder, max_sweeps=1))
    np.testing.assert_allclose(result.probability, marginals, atol=1e-8)
    assert result.log_partition == pytest.approx(log_partition, rel=1e-12)
    assert result.status is Status.CONVERGED
    expected, labels = viterbi(unary, tables)
    best = infer(Potentials.graph(unary, chain, tables), MaxProduct())
    np.testing.assert_array_equal(best.labels, labels)
    assert best.score == pytest.approx(expected, rel=1e-12)


def test_forbidden_pairs_on_trees() -> None:
    """Beliefs, log Z and the best score agree with dynamic programming."""
    for seed in range(10):
        model = random_tree(12, 3, seed)
        tables = np.where(np.random.default_rng(seed).random(model.tables.shape) < 0.3, FORBIDDEN, model.tables)
        tables[:, 0, 0] = 0.0
        unary = model.unary.copy()
        unary[:, 0] = np.maximum(unary[:, 0], -5)  # label 0 everywhere is allowed
        exact, pot = Tree(unary, model.edges, tables), Potentials.graph(unary, model.edges, tables)
        for decoder in (LBP(), TRW(), LBP(tolerance=1e-11, schedule="coloured")):
            result = infer(pot, decoder)
            np.testing.assert_allclose(result.probability, exact.marginals, atol=1e-8)
            assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-8)
        assert infer(pot, MaxProduct()).score == pytest.approx(exact.map_score, abs=1e-9)


@pytest.mark.parametrize("schedule", ["auto", "coloured", "sequential"])
def test_max_product_on_trees_with_ties(schedule: str) -> None:
    """Scores of 0 and 1 cause many ties; the labelling must still be optimal."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = random_tree(25, 3, seed)
        unary, tables = rng.integers(2, size=(25, 3)), rng.integers(2, size=(24, 3, 3))
        result = infer(Potentials.graph(unary, model.edges, tables.astype(float)), MaxProduct(schedule=schedule))
        assert result.score == Tree(unary.astype(float), model.edges, tables.astype(float)).map_score
        assert result.probability is None


def test_potts_trees_with_ties_between_labels() -> None:
    star = np.array([[0, k] for k in range(1, 7)])
    result = infer(Potentials.graph(np.zeros((7, 4)), star, -1.0), MaxProduct())
    assert result.score == 0
    assert infer(Potentials.graph(np.zeros((7, 4)), star, 1.0), MaxProduct()).score == 6


def test_weak_couplings_are_propagated() -> None:
    """Couplings far below the tolerance are still propagated once."""
    model = random_tree(20, 3, 3)
    weak = model._replace(unary=np.zeros((20, 3)), tables=1e-7 * model.tables)
    np.testing.assert_allclose(infer(Potentials.graph(*weak), LBP()).probability, Tree(*weak).marginals, atol=1e-13)
    for decoder in (LBP(schedule="coloured"), TRW(schedule="coloured")):  # linear domain, log domain
        result = infer(Potentials.graph(*weak), decoder)
        assert np.abs(result.probability - 1 / 3).max() > 1e-8


# graphs with cycles


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_bounds_hold_at_every_sweep(structure: str, kind: str) -> None:
    """TRW bounds log Z from above after any number of sweeps, even without convergence."""
    for seed, coupling in enumerate((0.5, 2.0, 8.0)):
        model = random_model(structure, kind, 6, 3, coupling=coupling, forbidden=0.1, seed=seed)
        exact, pot = Enumeration(*model).log_partition, Potentials.graph(*model)
        bounds = []
        for max_sweeps in (1, 2, 3, 10, 200):
            result = infer(pot, TRW(max_sweeps=max_sweeps, n_forests=4), n_threads=1)
            assert result.log_partition_kind is BoundKind.UPPER
            bounds.append(result.log_partition)
        assert min(bounds) >= exact - 1e-9 * max(1, abs(exact))
        assert bounds[-1] <= bounds[0] + 1e-6 * abs(exact)


def test_bound_holds_with_forbidden_pairs() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        unary, tables = rng.normal(size=(8, 3)), rng.normal(size=(7, 3, 3))
        tables[rng.random(tables.shape) < 0.3] = FORBIDDEN
        tables[:, 0, 0] = 0.0
        exact = Enumeration(unary, GRAPH, tables).log_partition
        for max_sweeps in (1, 3, 200):
            assert infer(on_tables(unary, GRAPH, tables), TRW(max_sweeps=max_sweeps)).log_partition >= exact - 1e-9


def test_converged_messages_minimise_the_bound() -> None:
    """The bound is convex in the messages and minimal at convergence, so other messages give a larger one."""
    pot = ODD["primes"]
    problem = problem_of(pot, "numba")
    decoder = TRW(tolerance=1e-12, max_sweeps=2_000)
    state: Any = decoder.init(problem)
    while not decoder.step(problem, state).converged:
        pass

    def bound() -> float:
        (value,) = np.asarray(decoder.finish(problem, state).log_partition)
        return float(value)

    best = bound()
    converged = state.messages.copy()
    for seed, size in enumerate((1e-4, 1e-3, 1e-2, 0.1, 1.0)):
        state.messages[:] = converged + size * np.random.default_rng(seed).normal(size=converged.shape)
        assert bound() > best


def test_single_cycle() -> None:
    """At the fixed point of belief propagation, every message satisfies its update equation."""
    model = random_model("cycle", "random", 6, 3, coupling=1.0, seed=4)
    pot = Potentials.graph(*model)
    problem = problem_of(pot, "numba")
    decoder = LBP(tolerance=0, max_sweeps=200)
    state: Any = decoder.init(problem)
    for _ in range(100):
        decoder.step(problem, state)
    logs = np.log(state.messages[0])
    m = pot.model
    for i in range(6):
        belief = model.unary[i] + logs[m.indptr[i] : m.indptr[i + 1]].sum(axis=0)
        for slot in range(m.indptr[i], m.indptr[i + 1]):
            table = model.tables[m.edge[slot]]
            updated, _ = send(cavity(belief, logs[slot]), table.T if m.end[slot] else table, maximise=False)
            np.testing.assert_allclose(logs[m.reverse[slot]], updated, atol=1e-12)


def test_log_and_linear_domain_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pot = ODD["batch"]
    linear = infer(pot, LBP(tolerance=1e-10))
    monkeypatch.setattr(message_plan, "MOST_RANGE", -1.0)
    logs = infer(pot, LBP(tolerance=1e-10))
    np.testing.assert_allclose(linear.probability, logs.probability, atol=1e-9)
    np.testing.assert_allclose(linear.log_partition, logs.log_partition, rtol=1e-11)


def test_bethe_approximation_is_close_for_weak_coupling() -> None:
    model = random_model("full", "random", 6, 3, coupling=0.1, seed=2)
    exact = Enumeration(*model)
    result = infer(Potentials.graph(*model), LBP())
    assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-3)
    np.testing.assert_allclose(result.probability, exact.marginals, atol=1e-3)
    assert result.log_partition_kind is BoundKind.BETHE


def test_max_product_returns_the_best_labelling_found() -> None:
    """Messages do not converge on this frustrated model, but more sweeps never lower the score."""
    model = random_model("full", "potts", 9, 2, coupling=3.0, seed=8)
    pot = Potentials.graph(*model)
    scores = [infer(pot, MaxProduct(damping=0, max_sweeps=n)).score for n in (10, 20, 40, 80)]
    assert infer(pot, MaxProduct(damping=0, max_sweeps=80)).status is Status.MAX_SWEEPS
    assert scores == sorted(scores)
    assert scores[-1] <= Enumeration(*model).map_score


# extreme scores


@pytest.mark.parametrize(
    "decoder", [LBP(), TRW(), MaxProduct(), PerturbAndMaxProduct(n_samples=3)], ids=lambda d: d.name
)
@pytest.mark.parametrize("case", ["far apart", "far apart, tables", "nothing allowed", "forbidden pairs"])
def test_extreme_scores_stay_finite(decoder: Any, case: str) -> None:
    result = infer(ODD[case], decoder)
    assert np.isfinite(unary_scores(ODD[case], result)).all()
    if result.probability is not None:
        assert np.isfinite(result.probability).all()
        np.testing.assert_allclose(result.probability.sum(axis=-1), 1, atol=1e-6)
    if result.log_partition is not None:
        expected = case == "nothing allowed"
        assert (result.log_partition == FORBIDDEN) == expected
        assert not np.isnan(result.log_partition)


@pytest.mark.parametrize("scale", [1e12, 1e17])
@pytest.mark.parametrize("decoder", [LBP(), TRW()], ids=lambda d: d.name)
def test_ties_at_any_scale_sum_to_one(decoder: Any, scale: float) -> None:
    """The logarithm of 2 or 3, for tied labels, is far below the rounding error of their scores."""
    unary = np.full((3, 4, 3), scale)
    unary[:, ::2, 2] = 0.0
    result = infer(Potentials.grid(unary, scale), decoder)
    np.testing.assert_allclose(result.probability.sum(axis=-1), 1, rtol=1e-15)


def unary_scores(pot: Potentials, result: Result) -> np.ndarray:
    """Return the unary scores of the labels: -inf where a forbidden label was chosen."""
    return np.take_along_axis(pot.unary[0], result.labels[:, None], axis=1)[:, 0]


def test_dominant_weight_gives_equal_labels() -> None:
    unary = np.random.default_rng(5).normal(scale=1e4, size=(4, 5, 3))  # own generator: independent of earlier tests
    pot = Potentials.grid(unary, 1e6)
    for decoder in (LBP(), MaxProduct()):
        assert len(np.unique(infer(pot, decoder).labels)) == 1
    best = 31 * 1e6 + unary.sum(axis=(0, 1)).max()
    # Here log Z equals the best score up to rounding.  The bound exceeds it by at most the range of constant labels.
    above = infer(pot, TRW(max_sweeps=1_000)).log_partition - best
    assert -1e-12 * best <= above <= np.ptp(unary.sum(axis=(0, 1)))


# threads, batches, orders


@pytest.mark.parametrize(
    "decoder",
    [LBP(), TRW(n_forests=3), MaxProduct(), PerturbAndMaxProduct(n_samples=9), LBP(schedule="sequential")],
    ids=lambda d: f"{d.name} {d.schedule}",
)
@pytest.mark.parametrize("case", ["batch", "factored", "table per edge and image", "primes", "forbidden pairs"])
def test_results_do_not_depend_on_threads_or_batches(decoder: Any, case: str) -> None:
    pot = ODD[case]
    one, *others = (infer(pot, decoder, n_threads=n, seed=1, first_image=4) for n in (1, 2, 3))
    parts = pot.pairwise
    alone = []
    for n in range(pot.n_images):
        weights = None if parts.weights is None else tuple(image_row(w, n) for w in parts.weights)
        features, tables = (None if a is None else image_row(a, n) for a in (parts.features, parts.tables))
        cut = replace(parts, weights=weights, features=features, tables=tables)
        single = replace(pot, unary=pot.unary[n : n + 1], pairwise=cut)
        alone.append(infer(single, decoder, seed=1, first_image=4 + n))
    for other in others:
        check_identical(one, other)
    for n, result in enumerate(alone):
        if pot.batched:
            check_identical_image(one, n, result)


def image_row(array: np.ndarray, n: int) -> np.ndarray:
    return array[n : n + 1] if len(array) > 1 else array


def check_identical_image(batch: Result, n: int, alone: Result) -> None:
    np.testing.assert_array_equal(batch.labels[n], alone.labels[0])
    if batch.probability is not None:
        assert batch.probability[n].tobytes() == alone.probability[0].tobytes()
    if batch.log_partition is not None:
        assert batch.log_partition[n] == alone.log_partition[0]


def test_image_outside_the_linear_domain_does_not_affect_others() -> None:
    unary, weights = normal(2, 3, 3, 2), (normal(2, 3, 2), normal(2, 2, 3))
    both = infer(Potentials.grid(unary, weights), LBP())
    far = tuple(np.stack([w[0], 1e4 * w[1]]) for w in weights)
    assert linear_domain(Potentials.grid(unary, far).model)[1].tolist() == [True, False]
    mixed = infer(Potentials.grid(unary, far), LBP())
    assert mixed.probability[0].tobytes() == both.probability[0].tobytes()
    assert mixed.log_partition[0] == both.log_partition[0]
    alone = infer(Potentials.grid(unary[1], tuple(w[1] for w in far)), LBP())
    assert alone.probability.tobytes() == mixed.probability[1].tobytes()


def test_schedules_reach_the_same_fixed_point() -> None:
    pot = ODD["primes"]
    coloured, sequential = (infer(pot, LBP(schedule=s, tolerance=1e-10)) for s in ("coloured", "sequential"))
    np.testing.assert_allclose(coloured.probability, sequential.probability, atol=1e-8)
    assert sequential.n_sweeps < coloured.n_sweeps


def test_single_precision_unaries() -> None:
    pot = ODD["primes"]
    single = Potentials.grid(
        pot.unflatten(pot.unary).astype(np.float32),
        tuple(w.reshape(s) for w, s in zip(pot.pairwise.weights or (), ((3, 4), (2, 5)), strict=True)),
    )
    result = infer(single, LBP())
    assert result.probability.dtype == np.float32
    np.testing.assert_allclose(result.probability, infer(pot, LBP()).probability, atol=1e-6)


# forests


@pytest.mark.parametrize("case", ODD)
def test_spanning_forests(case: str) -> None:
    model = ODD[case].model
    n_sites, n_edges = model.unary.shape[1], len(model.edges)
    forests, rho = spanning_forests(model, 4)
    uses = np.zeros(n_edges)
    root_counts = set()
    for forest in forests:
        assert sorted(forest.order.tolist()) == list(range(n_sites))
        used = forest.parent[forest.parent >= 0]
        uses[model.edge[used]] += 1
        owners = np.repeat(np.arange(n_sites), np.diff(model.indptr))[used]
        assert (owners == np.flatnonzero(forest.parent >= 0)).all()
        rank = np.argsort(forest.order)
        assert (rank[model.neighbour[used]] < rank[owners]).all(), "a child comes before its parent"
        root_counts.add(int((forest.parent < 0).sum()))
    assert len(root_counts) == 1, "every forest spans every component"
    np.testing.assert_allclose(rho, uses / len(forests))
    assert (rho > 0).all()
    assert rho.sum() == pytest.approx(n_sites - root_counts.pop())
    assert len(forests) == 1 if (rho == 1).all() else len(forests) >= 4


def test_message_plans() -> None:
    chain, ring = ODD["nx1"], ODD["primes"]
    kernels = CpuKernels("numba")
    order, *rest = kernels.plan_messages(chain.view, "auto", 0.5, 1e-3)
    assert len(order) == 2 * chain.n_sites
    assert rest[:-1] == [False, 0.0, 0.0, True]
    for pot, schedule, expected in (
        (chain, "coloured", [True, 0.0, 1e-3, False]),
        (ring, "auto", [True, 0.5, 1e-3, False]),
        (ring, "sequential", [False, 0.5, 1e-3, False]),
    ):
        assert list(kernels.plan_messages(pot.view, schedule, 0.5, 1e-3)[1:-1]) == expected


# perturb and max-product


def test_on_trees_each_sample_is_the_best_labelling_under_its_noise() -> None:
    model = random_tree(7, 3, 1)
    pot = Potentials.graph(*model)
    result = infer(pot, PerturbAndMaxProduct(n_samples=20, keep_samples=True), seed=6, first_image=2)
    for s, labels in enumerate(result.samples):
        noisy = model.unary + noise.gumbel(key_of(6), 2, s, np.arange(7), 3)
        np.testing.assert_array_equal(labels, Enumeration(noisy, model.edges, model.tables).map_labels)
    votes = (result.samples[..., None] == np.arange(3)).mean(axis=0)
    np.testing.assert_allclose(result.probability, votes)
    assert (result.noise, result.n_samples, result.status) == ("plain", 20, Status.COMPLETE)


def test_without_edges_samples_follow_the_softmax() -> None:
    unary = normal(3, 4)
    result = infer(Potentials.graph(unary, [], 1.0), PerturbAndMaxProduct(n_samples=4_000), seed=2)
    for p, expected in zip(result.probability, softmax(unary, axis=1), strict=True):
        assert chi_square_p_value(4_000 * p, expected) > 1e-6


def test_samples_do_not_depend_on_the_backend() -> None:
    pot = ODD["factored"]
    compiled, reference = (
        infer(pot, PerturbAndMaxProduct(n_samples=5, keep_samples=True), backend=b) for b in ("numba", "reference")
    )
    np.testing.assert_array_equal(compiled.samples, reference.samples)
    assert compiled.n_sweeps == reference.n_sweeps


def test_zero_temperature_equals_max_product() -> None:
    pot = ODD["primes"]
    result = infer(pot, PerturbAndMaxProduct(n_samples=2, temperature=0, tolerance=1e-6))
    np.testing.assert_array_equal(result.labels, infer(pot, MaxProduct()).labels)
    assert set(np.unique(result.probability)) == {0, 1}


# options


@pytest.mark.parametrize("decoder", [LBP, TRW, MaxProduct, PerturbAndMaxProduct])
@pytest.mark.parametrize(
    "options",
    [{"damping": 1.0}, {"damping": -0.1}, {"max_sweeps": 0}, {"tolerance": -1}, {"schedule": "flooding"}],
    ids=str,
)
def test_bad_options(decoder: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        decoder(**options)


def test_sweep_limit_is_reported() -> None:
    for decoder in (LBP(max_sweeps=2), TRW(max_sweeps=2), MaxProduct(max_sweeps=1)):
        result = infer(ODD["primes"], decoder)
        assert result.status is Status.MAX_SWEEPS
        assert not result.converged
        assert result.n_sweeps == decoder.max_sweeps
    cut = infer(ODD["primes"], PerturbAndMaxProduct(n_samples=2, max_sweeps=1))
    assert cut.status is Status.CLIMBS_CUT
