"""The contract of all decoders, and the guarantees of each one, compared with enumeration.

Every registered decoder needs an entry in PROMISES; the tests then include it automatically.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import PairwiseModel, random_grid, random_model
from tests.support.score_checks import without_sites

from locpmap.errors import InputError
from locpmap.inference import DECODERS, infer
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Result, Status

Kind = tuple[str, str, int]  # structure, tables, number of labels


def everywhere(kind: Kind) -> bool:
    return True


def nowhere(kind: Kind) -> bool:
    return False


def on_trees(kind: Kind) -> bool:
    return kind[0] in ("star", "tree")


def on_attractive_binary(kind: Kind) -> bool:
    return kind[1] == "attractive" and kind[2] == 2


@dataclass(frozen=True)
class Promise:
    """Models on which a decoder is exact, the bound it returns, and the models that it may reject."""

    best_labels: Callable[[Kind], bool] = nowhere
    exact_probability: Callable[[Kind], bool] = nowhere
    exact_log_partition: Callable[[Kind], bool] = nowhere
    bound: BoundKind | None = None
    score_bound: bool = False
    may_reject: Callable[[Kind], bool] = nowhere
    probability: bool = True
    random: bool = False
    local: bool = False  # labels are a local maximum
    options: dict[str, Any] = field(default_factory=dict)


SAMPLES = {"n_samples": 24}
PROMISES = {
    "locpmap": Promise(random=True, options=SAMPLES),
    "icm": Promise(probability=False, random=True, local=True),
    "icm_iter": Promise(random=True, options=SAMPLES),
    "perturb_and_map": Promise(
        random=True,
        bound=BoundKind.ESTIMATE,
        may_reject=lambda kind: not on_attractive_binary(kind),
        options=SAMPLES,
    ),
    "perturb_and_max_product": Promise(random=True, options=SAMPLES),
    "lbp": Promise(exact_probability=on_trees, exact_log_partition=on_trees, bound=BoundKind.BETHE),
    "max_product": Promise(best_labels=on_trees, probability=False, options={"n_forests": 3}, score_bound=True),
    "mean_field": Promise(bound=BoundKind.LOWER),
    "gibbs": Promise(random=True, options=SAMPLES),
    "annealing": Promise(probability=False, random=True),
    "trw": Promise(exact_probability=on_trees, exact_log_partition=on_trees, bound=BoundKind.UPPER, score_bound=True),
    "graph_cut": Promise(
        best_labels=on_attractive_binary, probability=False, may_reject=lambda kind: kind[1] != "attractive"
    ),
    "exact": Promise(
        best_labels=everywhere, exact_probability=everywhere, exact_log_partition=everywhere, bound=BoundKind.EXACT
    ),
}
NAMES = sorted(DECODERS)
KINDS = list(itertools.product(("grid", "full", "star", "tree"), ("random", "potts", "attractive"), (2, 3)))


def test_every_registered_decoder_is_declared() -> None:
    assert sorted(DECODERS) == sorted(PROMISES)


def decode(name: str, pot: Potentials, **more: Any) -> Result:
    known = {f.name for f in dataclasses.fields(DECODERS[name])}  # type: ignore[arg-type]
    options = {key: value for key, value in PROMISES[name].options.items() if key in known}
    return infer(pot, name, **(options | more))


def decode_unless_rejected(name: str, pot: Potentials, kind: Kind, **more: Any) -> Result | None:
    """Decode, or return None if the decoder rejects a model that it may reject."""
    try:
        return decode(name, pot, **more)
    except InputError:
        if not PROMISES[name].may_reject(kind):
            raise
        return None


# comparison with enumeration


@cache
def small_model(kind: Kind, n_sites: int) -> tuple[PairwiseModel, Enumeration]:
    structure, tables, n_labels = kind
    model = random_model(structure, tables, n_sites, n_labels, coupling=0.7, seed=n_sites)
    return model, Enumeration(*model)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_results_against_enumeration(name: str, kind: Kind) -> None:
    promise = PROMISES[name]
    for n_sites in (3, 6):
        model, exact = small_model(kind, n_sites)
        pot = Potentials.graph(*model)
        result = decode_unless_rejected(name, pot, kind)
        if result is None:
            continue
        check_result(result, pot, name)
        assert result.score <= exact.map_score + 1e-9
        if promise.best_labels(kind):
            assert result.score == pytest.approx(exact.map_score, abs=1e-9)
        if promise.exact_probability(kind):
            np.testing.assert_allclose(result.probability, exact.marginals, atol=1e-5)
        if promise.exact_log_partition(kind):
            assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-5)
        if promise.local:
            here = np.take_along_axis(pot.local_scores(result.labels), result.labels[:, None], axis=1)[:, 0]
            assert (pot.local_scores(result.labels).max(axis=1) <= here + 1e-9).all()
        slack = 1e-6 * (1 + abs(exact.log_partition))
        if promise.score_bound:
            assert result.bound >= exact.map_score - slack
            assert result.bound <= exact.map_score + slack or not on_trees(kind)
        if promise.bound is BoundKind.LOWER:
            assert result.log_partition <= exact.log_partition + slack
        if promise.bound is BoundKind.UPPER:
            assert result.log_partition >= exact.log_partition - slack


# every field of every result


def check_result(result: Result, pot: Potentials, name: str) -> None:
    promise = PROMISES[name]
    images = (pot.n_images,) if pot.batched else ()
    sites = (*images, *pot.structure.shape)
    masked = np.zeros(sites, bool)
    if pot.masked is not None:
        masked[...] = np.broadcast_to(pot.masked, (pot.n_images, pot.n_sites)).reshape(sites)
    assert result.labels.shape == sites
    assert result.labels.dtype == np.int64
    assert ((result.labels == -1) == masked).all()
    assert ((result.labels >= 0) | masked).all()
    assert (result.labels < pot.n_labels).all()
    unary = pot.unflatten(pot.unary)
    chosen = np.take_along_axis(unary, np.maximum(result.labels, 0)[..., None], axis=-1)
    assert (chosen > -np.inf).all(), "a forbidden label was chosen"
    assert (result.probability is not None) == promise.probability
    if promise.probability:
        p = result.probability
        assert p.shape == (*sites, pot.n_labels)
        assert p.dtype == pot.unary.dtype
        assert np.isfinite(p).all()
        assert ((p >= 0) & (p <= 1 + 1e-6)).all()
        np.testing.assert_allclose(p.sum(axis=-1), ~masked, atol=1e-5)
        assert (p[(unary == -np.inf) & ~masked[..., None]] == 0).all(), "a forbidden label has probability"
        np.testing.assert_allclose(result.variance, p * (1 - p), atol=1e-6)
        np.testing.assert_allclose(result.entropy, -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1), atol=1e-5)
    else:
        assert result.variance is None
        assert result.entropy is None
    np.testing.assert_array_equal(result.score, pot.score(result.labels))
    assert np.shape(result.score) == images
    assert isinstance(result.status, Status)
    assert result.converged == (result.status in (Status.EXACT, Status.CONVERGED, Status.COMPLETE))
    assert (result.method, result.device) == (name, "cpu")
    assert result.backend in ("numba", "reference")
    assert isinstance(result.seconds, float)
    assert result.seconds >= 0
    assert result.n_sweeps >= 0
    assert isinstance(result.n_samples, int)
    kind = result.log_partition_kind
    assert (BoundKind.ESTIMATE if kind is BoundKind.UPPER_ESTIMATE else kind) == promise.bound  # depends on the size
    assert (result.log_partition is None) == (promise.bound is None)
    if promise.bound is not None:
        assert np.shape(result.log_partition) == images
        assert images or isinstance(result.log_partition, float)
        assert np.isfinite(result.log_partition).all()
    assert (result.log_partition_error is None) == (promise.bound is not BoundKind.ESTIMATE)
    assert (result.bound is None) != promise.score_bound
    for value in (result.log_partition_error, result.bound):
        if value is not None:
            assert np.shape(value) == images
            assert np.isfinite(value).all()
    assert result.samples is None
    assert repr(result)


def odd_cases() -> dict[str, Potentials]:
    rng = np.random.default_rng(5)
    unary = rng.normal(size=(3, 4, 2))
    batch = rng.normal(size=(3, 3, 4, 2))
    hard = unary.copy()
    hard[0, 1, 0] = hard[2, 2, 1] = -np.inf
    mask = np.zeros((3, 4), bool)
    mask[1, 1:3] = True
    return {
        "grid": Potentials.grid(unary, 0.6),
        "eight neighbours": Potentials.grid(unary, 0.3, connectivity=8),
        "window": Potentials.grid(unary, 0.6, window=(3, 2, 9)),
        "single precision": Potentials.grid(unary.astype(np.float32), 0.6),
        "batch": Potentials.grid(batch, (rng.random((3, 3, 3)), rng.random((2, 4)))),
        "batch of one": Potentials.grid(batch[:1], 0.6),
        "graph": Potentials.graph(rng.normal(size=(4, 2)), [[0, 1], [2, 1], [3, 1]], rng.random(3)),
        "batch of graphs": Potentials.graph(rng.normal(size=(2, 4, 2)), [[0, 1], [2, 1], [3, 1]], rng.random((2, 3))),
        "forbidden labels": Potentials.grid(hard, 0.6),
        "masked": Potentials.grid(unary, 0.6, mask=mask),
        "masked batch": Potentials.grid(batch, 0.6, mask=np.stack([mask, ~mask, mask[::-1, ::-1]])),
        "one site": Potentials.grid(unary[:1, :1], 0.6),
        "one row": Potentials.grid(unary[:1], 0.6),
        "one label": Potentials.grid(unary[..., :1], 0.6),
        "no edges": Potentials.graph(rng.normal(size=(3, 2)), [], 1.0),
        "no coupling": Potentials.grid(unary, 0.0),
    }


@pytest.mark.parametrize("case", odd_cases())
@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_the_result(name: str, case: str) -> None:
    pot = odd_cases()[case]
    check_result(decode(name, pot), pot, name)


@pytest.mark.parametrize("name", NAMES)
def test_decoders_declare_whether_they_give_probabilities(name: str) -> None:
    assert DECODERS[name].has_probability == PROMISES[name].probability


@pytest.mark.parametrize("name", NAMES)
def test_forbidden_pairs_give_no_nan(name: str) -> None:
    """Labels 0 and 1 must not be neighbours; label 2 is compatible with both."""
    table = np.array([[0.5, -np.inf, 0.0], [-np.inf, 0.5, 0.0], [0.0, 0.0, 0.5]])
    pot = Potentials.grid(np.random.default_rng(6).normal(size=(2, 3, 3)), table)
    result = decode_unless_rejected(name, pot, ("grid", "random", 3))
    if result is not None:
        check_result(result, pot, name)
        assert result.score > -np.inf or PROMISES[name].random


@pytest.mark.parametrize("name", NAMES)
def test_masking_a_site_removes_it_from_the_graph(name: str) -> None:
    """Exact decoders return the log partition, marginals and best score of the model without the site."""
    model = random_grid(2, 3, 2, "attractive", seed=7).flatten()
    mask = np.array([False, True, False, False, False, False])
    exact = Enumeration(*without_sites(model, mask))
    result = decode(name, Potentials.graph(*model, mask=mask))
    kind, promise = ("grid", "attractive", 2), PROMISES[name]
    if promise.best_labels(kind):
        assert result.score == pytest.approx(exact.map_score, abs=1e-9)
    if promise.exact_probability(kind):
        np.testing.assert_allclose(result.probability[~mask], exact.marginals, atol=1e-9)
    if promise.exact_log_partition(kind):
        assert result.log_partition == pytest.approx(exact.log_partition, abs=1e-9)


def test_strong_coupling_makes_the_best_labelling_constant() -> None:
    pot = Potentials.grid(np.random.default_rng(8).normal(size=(3, 4, 2)), 1e3)
    for name in NAMES:
        if PROMISES[name].best_labels(("grid", "attractive", 2)):
            assert len(np.unique(decode(name, pot).labels)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_without_edges_results_follow_the_unaries(name: str) -> None:
    unary = np.random.default_rng(9).normal(size=(5, 2))
    pot = Potentials.graph(unary, [], 1.0)
    result = decode(name, pot)
    weights = np.exp(unary)
    if not PROMISES[name].random:
        np.testing.assert_array_equal(result.labels, unary.argmax(axis=1))
        if result.probability is not None:
            np.testing.assert_allclose(result.probability, weights / weights.sum(axis=1, keepdims=True), atol=1e-6)
    if result.log_partition is not None:
        error = 1e-6 if result.log_partition_error is None else 5 * result.log_partition_error
        assert result.log_partition == pytest.approx(np.log(weights.sum(axis=1)).sum(), abs=error)


@pytest.mark.parametrize("name", NAMES)
def test_tensor_input_gives_tensor_output(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    unary, mask = np.random.default_rng(12).normal(size=(2, 3, 4, 2)), np.eye(3, 4, dtype=bool)
    result = decode(name, Potentials.grid(torch.from_numpy(unary), torch.tensor(0.5), mask=torch.from_numpy(mask)))
    plain = decode(name, Potentials.grid(unary, 0.5, mask=mask))
    for value in (
        "labels",
        "probability",
        "variance",
        "entropy",
        "score",
        "log_partition",
        "log_partition_error",
        "bound",
    ):
        found, expected = getattr(result, value), getattr(plain, value)
        assert (found is None) == (expected is None)
        if expected is not None:
            assert isinstance(found, torch.Tensor), f"{value} is no tensor"
            np.testing.assert_array_equal(found.numpy(), expected)


# seeds, threads, batches, backends


def batch_of(n_images: int = 5) -> Potentials:
    rng = np.random.default_rng(10)
    return Potentials.grid(rng.normal(size=(n_images, 4, 5, 2)), 0.4)


def check_identical(a: Result, b: Result) -> None:
    """Check that two results are equal bit for bit."""
    np.testing.assert_array_equal(a.labels, b.labels)
    if a.probability is not None:
        assert a.probability.tobytes() == b.probability.tobytes()
    if a.log_partition is not None:
        np.testing.assert_array_equal(a.log_partition, b.log_partition)
    if a.bound is not None:
        np.testing.assert_array_equal(a.bound, b.bound)
    assert (a.status, a.n_sweeps, a.n_samples) == (b.status, b.n_sweeps, b.n_samples)


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_give_identical_results(name: str) -> None:
    pot = batch_of()
    check_identical(decode(name, pot, seed=3), decode(name, pot, seed=3))
    np.random.seed(1)  # noqa: NPY002 - the global generator must have no effect
    first = decode(name, pot, seed=3)
    np.random.seed(2)  # noqa: NPY002
    check_identical(first, decode(name, pot, seed=3))


@pytest.mark.parametrize("name", NAMES)
def test_seed_changes_only_random_decoders(name: str) -> None:
    rng = np.random.default_rng(11)
    pot = Potentials.grid(0.1 * rng.normal(size=(12, 12, 2)), 0.4)
    one, two = decode(name, pot, seed=1), decode(name, pot, seed=2**40 + 1)
    draws = [r.labels if r.probability is None else r.probability for r in (one, two)]
    assert (draws[0] != draws[1]).any() == PROMISES[name].random


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_threads(name: str) -> None:
    for pot in (batch_of(), batch_of(1)):
        one = decode(name, pot, n_threads=1)
        check_identical(one, decode(name, pot, n_threads=2))
        check_identical(one, decode(name, pot, n_threads=3))


@pytest.mark.parametrize("name", NAMES)
def test_batch_equals_single_images(name: str) -> None:
    pot = batch_of(3)
    images = pot.unflatten(pot.unary)
    batch = decode(name, pot, first_image=7)
    for n in range(3):
        alone = decode(name, Potentials.grid(images[n], 0.4), first_image=7 + n)
        np.testing.assert_array_equal(alone.labels, batch.labels[n])
        if batch.probability is not None:
            np.testing.assert_allclose(alone.probability, batch.probability[n], atol=1e-6)
            if PROMISES[name].random:
                assert alone.probability.tobytes() == batch.probability[n].tobytes()


@pytest.mark.parametrize("kind", [("grid", "attractive", 2), ("tree", "potts", 3), ("full", "random", 2)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_numba_agrees_with_the_reference(name: str, kind: Kind) -> None:
    model, _ = small_model(kind, 6)
    pot = Potentials.graph(*model)
    compiled, reference = (decode_unless_rejected(name, pot, kind, seed=5, backend=b) for b in ("numba", "reference"))
    assert (compiled is None) == (reference is None)
    if compiled is None or reference is None:
        return
    assert (compiled.backend, reference.backend) == ("numba", "reference")
    np.testing.assert_array_equal(compiled.labels, reference.labels)
    if compiled.probability is not None:
        np.testing.assert_allclose(compiled.probability, reference.probability, atol=1e-8)
    if compiled.log_partition is not None:
        assert compiled.log_partition == pytest.approx(reference.log_partition, abs=1e-8)
    assert (compiled.status, compiled.n_sweeps) == (reference.status, reference.n_sweeps)


# the driver loop


@pytest.mark.parametrize("name", NAMES)
def test_progress_and_time_limit(name: str) -> None:
    reports: list[tuple[int, int]] = []
    pot = batch_of(2)
    decode(name, pot, progress=lambda done, total: reports.append((done, total)))
    assert reports
    assert all(0 <= done <= total for done, total in reports)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    stopped = decode(name, pot, max_seconds=0)
    check_result(stopped, pot, name)
    if len(reports) > 1:
        assert stopped.status in (Status.MAX_SECONDS, Status.BURN_IN)


@pytest.mark.parametrize("name", NAMES)
def test_options_are_documented_and_misspellings_corrected(name: str) -> None:
    text = DECODERS[name].__doc__ or ""
    for option in dataclasses.fields(DECODERS[name]):  # type: ignore[arg-type]
        assert f"    {option.name} (" in text, f"{name} does not document {option.name}"
        with pytest.raises(InputError, match=f"did you mean '{option.name}'"):
            decode(name, batch_of(1), **{f"{option.name}x": 1})


@pytest.mark.parametrize("name", NAMES)
def test_decoders_are_immutable(name: str) -> None:
    decoder = DECODERS[name]()
    for option in dataclasses.fields(decoder):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(decoder, option.name, None)
    pot = batch_of(1)
    check_identical(infer(pot, decoder), infer(pot, name))
    check_identical(infer(pot, decoder), infer(pot, decoder))  # no state remains from the first run
