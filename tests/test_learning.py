"""Fits against exact samples and closed forms, and equal fits from equivalent inputs, options and backends."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.crf import fitting
from locpmap.crf.fitting import sampler_of
from locpmap.errors import InputTypeError
from locpmap.features import Features, ImageFeatures
from locpmap.formats.model_file import read_model, write_model
from locpmap.graphs import Grid
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.likelihood import Scores
from locpmap.learning import FitOptions, checkpoint, fit, optimisers
from locpmap.learning.batches import VOID, Batch, split
from locpmap.learning.dataset import read_dataset
from locpmap.learning.fit import HELD_OUT_SAMPLES, SAMPLES, Control, fit_stochastic
from locpmap.learning.objectives import Objective
from locpmap.learning.optimisers import Descent, descend, minimise
from locpmap.learning.parameters import Parameters

from .oracles.exact_data import exact_images
from .oracles.statistics import check_z, z_bound

CONSTANT = ImageFeatures(pairwise=("constant",))
TRUTH = np.array([-0.5, 0.5, 0.0, 0.0, 0.3])  # true weights: intensity (zero-sum), bias, coupling


def tied_potts_crf(**options: Any) -> lp.CRF:
    return lp.CRF(2, features=CONSTANT, potts=True, tied=True, **options)


def random_data(n: int = 12, shape: tuple[int, int] = (5, 7), n_labels: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(n, *shape))
    return images, np.clip((images + 0.7 * rng.normal(size=images.shape)).round() + 1, 0, n_labels - 1).astype(int)


# consistency of the estimators


def test_pseudolikelihood_finds_the_true_weights_within_standard_errors() -> None:
    images, labels = exact_images(2000, 3, 4, 1.0, 0.3, np.random.default_rng(1))
    result = tied_potts_crf().fit(images, labels, l2=0.0)
    assert result.converged
    assert result.standard_errors is not None
    z = (result.w - TRUTH) / result.standard_errors
    assert np.abs(z).max() < z_bound(3)  # a zero-sum pair is one free parameter


@pytest.mark.parametrize(("objective", "n_fits"), [("pseudolikelihood", 150), ("composite", 60)])
def test_standard_errors_match_the_spread_of_repeated_fits(objective: str, n_fits: int) -> None:
    z = []
    for seed in range(n_fits):
        images, labels = exact_images(60, 3, 3, 1.0, 0.3, np.random.default_rng([2, seed]))
        result = tied_potts_crf().fit(images, labels, objective, l2=0.0)
        z.append(((result.w - TRUTH) / result.standard_errors)[[1, 4]])
    # Test the two weights separately: fits are independent, weights of one fit are not.  A sandwich estimate from 60
    # images has a relative error of about 1 / sqrt(2 · 60), so z is nearly Student's t with 59 degrees of freedom.
    for values in np.array(z).T:
        check_z(values * np.sqrt(57 / 59))


def test_the_error_falls_with_the_square_root_of_the_number_of_images() -> None:
    rng = np.random.default_rng(3)
    errors, how = [], lp.learning.FitOptions(standard_errors=False)
    for n in (100, 1600):
        data = [exact_images(n, 3, 3, 1.0, 0.3, rng) for _ in range(50)]
        runs = [tied_potts_crf().fit(*pair, l2=0.0, options=how).w[4] - 0.3 for pair in data]
        errors.append(np.log(np.sqrt(np.mean(np.square(runs)))))
    # The log of a root mean square over 50 runs has a standard deviation of about 1 / sqrt(2 · 50).
    slope = (errors[1] - errors[0]) / np.log(16)
    assert abs(slope + 0.5) < z_bound(1) * np.sqrt(2 / 100) / np.log(16)


def test_a_warm_start_on_a_subset_gives_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = random_data(40)
    cold = lp.CRF(3).fit(images, labels, options=lp.learning.FitOptions(tolerance=1e-9))
    monkeypatch.setattr(fit, "WARM_UP_SITES", 200)
    warm = lp.CRF(3).fit(images, labels, options=lp.learning.FitOptions(tolerance=1e-9))
    assert warm.curve[0] < cold.curve[0] - 0.1
    np.testing.assert_allclose(warm.w, cold.w, atol=1e-5)


def test_the_penalty_shrinks_weights_but_not_biases() -> None:
    images, labels = exact_images(50, 3, 3, 1.0, 0.3, np.random.default_rng(4))
    free, held = (tied_potts_crf().fit(images, labels + 0, l2=l2).w for l2 in (0.0, 1e6))
    assert np.abs(held[[0, 1, 4]]).max() < 1e-2 < np.abs(free[[0, 1, 4]]).min()
    log_odds = np.log(labels.mean() / (1 - labels.mean()))
    assert held[3] - held[2] == pytest.approx(log_odds, abs=1e-2)


# equal results from equivalent inputs


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_the_objective_matches_the_conditionals_of_the_potentials(objective: str) -> None:
    """Compare with local scores of `Potentials`, and row conditionals with log partition functions of one row."""
    images, labels = random_data(n_labels=3)
    crf = lp.CRF(3, features=ImageFeatures(pairwise=("constant", "difference")))
    result = crf.fit(images, labels, objective, l2=0.0, blocks="rows" if objective == "composite" else None)
    if objective == "pseudolikelihood":
        scores = crf.potentials(images).local_scores(labels)
        log_p = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        assert result.value == pytest.approx(-np.take_along_axis(log_p, labels[..., None], -1).mean(), rel=1e-10)
        return
    pot, total = crf.potentials(images), 0.0
    for n, r in np.ndindex(*labels.shape[:2]):
        rest = np.ones(labels.shape[1:], bool)
        rest[r] = False
        # Allow only the true labels outside the row: the remaining distribution is the conditional of the row.
        held = np.array(pot.unary[n].reshape(*labels.shape[1:], 3))
        held[rest] = np.where(np.arange(3) == labels[n][rest][:, None], held[rest], -np.inf)
        features = crf.features(images[n])  # type: ignore[misc]
        whole = lp.Potentials.grid(held, untied_pairwise(crf, features))
        total += float(lp.infer(whole, "exact").log_partition) - float(whole.score(labels[n]))
    assert result.value == pytest.approx(total / labels.size, rel=1e-9)


def untied_pairwise(crf: lp.CRF, features: Features) -> lp.Factored:
    """Return the pairwise term of an untied model, built from its features and tables."""
    horizontal, vertical = np.split(features.pairwise[0], [5 * 6])
    zero_h, zero_v = np.zeros_like(horizontal), np.zeros_like(vertical)
    pair = np.hstack([horizontal, zero_h]).reshape(5, 6, -1), np.hstack([zero_v, vertical]).reshape(4, 7, -1)
    return lp.Factored(pair, crf.tables.reshape(-1, 3, 3))


def test_the_likelihood_of_small_models_is_exact() -> None:
    images, labels = exact_images(8, 4, 4, 1.0, 0.3, np.random.default_rng(5))
    crf = tied_potts_crf()
    result = crf.fit(images, labels, "likelihood", l2=0.0, options=lp.learning.FitOptions(tolerance=1e-3))
    pot = crf.potentials(images)
    exact = lp.infer(pot, "exact").log_partition - pot.score(labels)
    assert result.value == pytest.approx(exact.sum() / labels.size, rel=1e-10)


def test_a_fit_does_not_depend_on_the_number_of_threads() -> None:
    images, labels = random_data(40)
    fits = [lp.CRF(3).fit(images, labels, options=lp.learning.FitOptions(n_threads=n)).w for n in (1, 2, 3)]
    for one, other in pairwise(fits):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_the_reference_backend_gives_the_same_fit(objective: str) -> None:
    images, labels = random_data(4, (3, 4))
    fits = [lp.CRF(3).fit(images, labels, objective, backend=b).w for b in ("numba", "reference")]
    np.testing.assert_allclose(fits[1], fits[0], atol=1e-7)


def test_lists_streams_and_iterators_give_the_same_fit() -> None:
    images, labels = random_data(20)
    pairs = list(zip(images, labels, strict=True))
    whole = lp.CRF(3).fit(images, labels).w
    ways: dict[str, Any] = {
        "list": lambda crf: crf.fit(list(images), list(labels)),
        "stream": lambda crf: crf.fit(pairs),
        "iterator": lambda crf: crf.fit(iter(pairs)),
        "features": lambda crf: crf.fit([ImageFeatures()(x) for x in images], list(labels)),
    }
    for name, way in ways.items():
        np.testing.assert_allclose(way(lp.CRF(3)).w, whole, atol=1e-9, err_msg=name)


def test_images_of_different_sizes_are_fitted_together() -> None:
    small, large = random_data(6, (4, 5), seed=1), random_data(5, (3, 9), seed=2)
    mixed = lp.CRF(3).fit([*small[0], *large[0]], [*small[1], *large[1]]).w
    other = lp.CRF(3).fit([*large[0], *small[0]], [*large[1], *small[1]]).w
    np.testing.assert_allclose(mixed, other, atol=1e-6)
    one = lp.CRF(3).fit(*small).w
    assert np.abs(mixed - one).max() > 1e-3


def test_weights_of_images_are_equivalent_to_repetitions() -> None:
    images, labels = random_data(8)
    often = [0, 0, 1, 2, 2, 2, 4]
    weights = np.bincount(often, minlength=8)
    repeated = lp.CRF(3).fit(images[often], labels[often], options=lp.learning.FitOptions(tolerance=1e-9)).w
    weighted = lp.CRF(3).fit(images, labels, site_weights=weights, options=lp.learning.FitOptions(tolerance=1e-9)).w
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)


def test_void_sites_act_as_if_removed() -> None:
    """A void column splits an image into two independent images."""
    images, labels = random_data(15, (4, 9))
    holed = labels.copy()
    holed[:, :, 4] = 255
    parts = [*images[:, :, :4], *images[:, :, 5:]], [*labels[:, :, :4], *labels[:, :, 5:]]
    for objective in ("pseudolikelihood", "composite"):
        whole = (
            lp.CRF(3, ignore_label=255).fit(images, holed, objective, options=lp.learning.FitOptions(tolerance=1e-9)).w
        )
        np.testing.assert_allclose(
            whole, lp.CRF(3).fit(*parts, objective, options=lp.learning.FitOptions(tolerance=1e-9)).w, atol=1e-5
        )


def test_a_chain_graph_is_equivalent_to_a_grid_row() -> None:
    images, labels = random_data(10, (1, 6))
    edges = [[k, k + 1] for k in range(5)]
    graphs = [Features.graph(x.reshape(6, 1), edges) for x in images]
    blocks = [list(range(6))]
    on_graph = lp.CRF(3, features=None).fit(graphs, list(labels.reshape(10, 6)), "composite", blocks=blocks)
    on_grid = lp.CRF(3, features=CONSTANT, tied=True).fit(images, labels, "composite", blocks="rows")
    np.testing.assert_allclose(on_graph.w, on_grid.w, atol=1e-5)
    assert on_graph.value == pytest.approx(on_grid.value, rel=1e-8)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("objective", ["pseudolikelihood", "composite"])
def test_labels_may_have_any_memory_order(backend: str, objective: str) -> None:
    """Labels may be strided, for instance after stacking along the last axis; tests/triton tests the GPU kernels."""
    images, labels = random_data(4, (3, 5), n_labels=2)
    stacked = np.moveaxis(np.ascontiguousarray(np.moveaxis(labels, 0, -1)), -1, 0)
    assert not stacked.flags.c_contiguous
    how: dict[str, Any] = {
        "backend": backend,
        "options": lp.learning.FitOptions(max_iterations=1, standard_errors=False),
    }
    mine, truth = (lp.CRF(2, ignore_label=-1).fit(images, given, objective, **how) for given in (stacked, labels))
    np.testing.assert_array_equal(mine.w, truth.w)
    np.testing.assert_array_equal(mine.curve, truth.curve)


# gauge and constraints


@pytest.mark.parametrize(
    "kind", [{}, {"symmetric": True}, {"potts": True}, *({"unary": name} for name in ("scale", "temperature", "given"))]
)
def test_the_map_to_tables_agrees_with_its_transpose_and_inverse(kind: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    p = Parameters(3, ("a", "b", "c"), ("constant", "difference"), 2, **kind)
    w, gradient, table_gradient = (
        rng.normal(size=p.size),
        rng.normal(size=p.weights_shape),
        rng.normal(size=p.tables_shape),
    )
    weights, tables = p.expand(w)
    at_zero = p.expand(np.zeros(p.size))[0]  # not 0 if scores are used unscaled
    inner = ((weights - at_zero) * gradient).sum() + (tables * table_gradient).sum()
    assert w @ p.gradient(gradient, table_gradient) == pytest.approx(inner, rel=1e-12)
    for again, first in zip(p.expand(p.fold(weights, tables)), (weights, tables), strict=True):
        np.testing.assert_allclose(again, first, atol=1e-12)
    assert len(p.names) == p.size
    if "potts" not in kind:
        np.testing.assert_allclose(tables.sum(axis=(2, 3)), 0, atol=1e-12)
    if "potts" not in kind and kind.get("unary") not in ("temperature", "given"):
        np.testing.assert_allclose(tables[:, 0].sum(axis=1), 0, atol=1e-12)
        np.testing.assert_allclose(tables[:, 0].sum(axis=2), 0, atol=1e-12)
    if "symmetric" in kind:
        np.testing.assert_array_equal(tables, np.swapaxes(tables, 2, 3))


def test_the_gauge_changes_no_probability_and_any_start_gives_the_same_fit() -> None:
    images, labels = random_data(10)
    parameters = Parameters(3, ("intensity",), ("constant", "difference"), 2)
    given = labels.reshape(10, -1).astype(np.int16)
    batch = Batch(ImageFeatures()(images), given, np.ones((1, 1)))
    objective, data = Objective(parameters, CpuKernels("numba"), l2=1.0), read_dataset(parameters, [batch])
    rng = np.random.default_rng(7)
    weights, tables = parameters.expand(rng.normal(size=parameters.size))
    values = []
    for moved in (0.0, 1.0):  # add constants that the gauge would remove
        u, t = weights + moved * rng.normal(size=(2, 1)), tables + moved * rng.normal(size=(2, 2, 1, 1))
        unary = batch.features.unary @ u[:-1] + u[-1]
        scores = Scores(unary, batch.features.pairwise, t[None], False, False, *batch.features.wiring(tied=False))
        given_labels = (given, given[:, :, None], np.ones((1, 1)))
        values.append(CpuKernels("numba").site_losses(scores, *given_labels).value.sum())
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    ends = []
    for seed in range(3):
        start = np.random.default_rng(seed).normal(size=parameters.size)
        how = (data.scales, parameters.lowest, 500, 1e-9, lambda w, value: None)
        w = minimise(partial(objective.mean, data), start, *how)[0]
        ends.append(parameters.fold(*parameters.expand(w)))
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-5)
    np.testing.assert_allclose(ends[2], ends[0], atol=1e-5)


def test_non_negative_weights_are_not_negative() -> None:
    rng = np.random.default_rng(8)
    labels = np.indices((10, 6, 6)).sum(axis=0) % 2  # a checkerboard: neighbours always differ
    images = labels + rng.normal(size=labels.shape)
    free = tied_potts_crf().fit(images, labels)
    held = tied_potts_crf(non_negative=True).fit(images, labels)
    assert free.w[4] < -1
    assert held.w[4] == 0
    assert held.status is lp.learning.FitStatus.CONVERGED
    assert held.gradient_norm <= 1e-5
    assert held.standard_errors is not None
    assert held.standard_errors[4] == 0
    assert (held.standard_errors[:4] > 0).all()


def test_the_scale_of_scores_is_found() -> None:
    rng = np.random.default_rng(9)
    logits = rng.normal(size=(200, 3, 3, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1)  # the model with scale 1 and no coupling
    crf = lp.CRF(3, features=None, unary="scale", potts=True, tied=True)
    result = crf.fit([Features.grid(x) for x in 3 * logits], list(labels))
    assert result.standard_errors is not None
    z = (result.w - [1 / 3, 0, 0, 0, 0]) / np.where(result.standard_errors > 0, result.standard_errors, 1)
    assert np.abs(z).max() < z_bound(4)
    np.testing.assert_allclose(crf.weights[:3], result.w[0] * np.eye(3), atol=1e-12)


def test_couplings_are_found_with_scaled_or_given_scores() -> None:
    rng = np.random.default_rng(10)
    logits = rng.normal(size=(300, 4, 3, 3))
    labels = lp.infer(lp.Potentials.grid(logits, 0.7), "gibbs", n_samples=1, burn_in=50, keep_samples=True).samples[0]
    data = [Features.grid(x) for x in 2 * logits]
    tempered = lp.CRF(3, features=None, unary="temperature", potts=True, tied=True).fit(data, list(labels))
    given = lp.CRF(3, features=None, unary="given", potts=True, tied=True)
    result = given.fit([Features.grid(x) for x in logits], list(labels))
    assert (tempered.names, result.names) == (["scale", "constant, agree"], ["constant, agree"])
    for found, truth in ((tempered, [0.5, 0.7]), (result, [0.7])):
        assert found.standard_errors is not None
        assert np.abs((found.w - truth) / found.standard_errors).max() < z_bound(2)
    np.testing.assert_array_equal(given.weights, np.eye(4, 3))
    again = given.potentials(Features.grid(logits))
    np.testing.assert_allclose(again.unflatten(again.unary), logits, atol=1e-12)


def test_without_a_bias_tables_include_effects_of_single_labels() -> None:
    rng = np.random.default_rng(11)
    logits, table = rng.normal(size=(200, 6, 6, 2)), np.array([[0.5, 0.0], [0.0, -0.5]])
    pot = lp.Potentials.grid(logits, table)
    labels = lp.infer(pot, "gibbs", n_samples=1, burn_in=50, keep_samples=True).samples[0]
    crf = lp.CRF(2, features=None, unary="given", tied=True, symmetric=True)
    result = crf.fit([Features.grid(x) for x in logits], list(labels))
    assert result.standard_errors is not None
    assert np.abs(crf.tables[0, 0] - table).max() < z_bound(3) * result.standard_errors.max()


def test_the_feature_of_a_single_edge_may_differ_between_images() -> None:
    """An edge axis of length 1 can be a graph of one edge: its feature then differs between images."""
    rng = np.random.default_rng(17)
    unary, edge, labels = rng.normal(size=(30, 2, 1)), rng.normal(size=(30, 1, 1)), rng.integers(0, 2, (30, 2))
    graph = lp.graphs.Graph(2, [[0, 1]])
    crf = lp.CRF(2, features=None)
    batch = crf.fit(Features.graph(unary, graph, edge), labels, options=lp.learning.FitOptions(tolerance=1e-9)).w
    singles = [Features.graph(u, graph, e) for u, e in zip(unary, edge, strict=True)]
    np.testing.assert_allclose(
        lp.CRF(2, features=None).fit(singles, list(labels), options=lp.learning.FitOptions(tolerance=1e-9)).w,
        batch,
        atol=1e-6,
    )
    whole = crf.infer(Features.graph(unary, graph, edge), "exact").probability
    for n in (0, 1, 7):
        np.testing.assert_allclose(crf.infer(singles[n], "exact").probability, whole[n], atol=1e-12)


def test_streams_with_different_features_are_refused() -> None:
    images, labels = random_data(4)
    mixed = [(ImageFeatures()(images[0]), labels[0]), (CONSTANT(images[1]), labels[1])]
    for pairs in (mixed, mixed[::-1]):
        with pytest.raises(lp.InputError, match="as in the first"):
            lp.CRF(3, features=None).fit(pairs)


def test_data_sets_and_functions_are_accepted_as_streams() -> None:
    images, labels = random_data(12)

    class DataSet:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, n: int) -> tuple[np.ndarray, np.ndarray]:
            return images[n], labels[n]

    whole = lp.CRF(3).fit(images, labels).w
    np.testing.assert_allclose(lp.CRF(3).fit(DataSet()).w, whole, atol=1e-9)
    np.testing.assert_allclose(lp.CRF(3).fit(lambda: zip(images, labels, strict=True)).w, whole, atol=1e-9)


def test_tensors_give_results_as_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    images, labels = random_data()
    crf = lp.CRF(3)
    crf.fit(torch.tensor(images), torch.tensor(labels))
    result = crf.infer(torch.tensor(images), seed=1)
    assert isinstance(result.labels, torch.Tensor)
    np.testing.assert_array_equal(result.labels.numpy(), crf.infer(images, seed=1).labels)


# consistent learning, mini-batches


def test_consistent_learning_finds_no_coupling_where_there_is_none() -> None:
    images, labels = exact_images(400, 4, 4, 1.0, 0.0, np.random.default_rng(10))
    crf = tied_potts_crf()
    base = crf.fit(images, labels)
    assert base.standard_errors is not None
    error = base.standard_errors[4]
    result = crf.fit(images, labels, "consistent")
    assert abs(result.w[4]) < z_bound(1) * np.sqrt(2) * error


def test_progress_of_consistent_learning_ends_at_its_total() -> None:
    images, labels = exact_images(60, 4, 4, 1.0, 0.5, np.random.default_rng(10))
    steps: list[tuple[int, int]] = []
    crf = tied_potts_crf()
    result = crf.fit(images, labels, "consistent", progress=lambda done, total, _: steps.append((done, total)))
    assert result.status is lp.learning.FitStatus.HELD_OUT
    assert all(done <= total for done, total in steps)
    assert [done for done, total in steps if done == total] == [steps[-1][0]]


def test_consistent_learning_is_at_least_as_good_as_its_start() -> None:
    images, labels = exact_images(600, 4, 4, 1.0, 0.8, np.random.default_rng(11))
    train, test = slice(0, 400), slice(400, 600)
    crf = tied_potts_crf()
    losses, kept = [], []
    for objective in ("pseudolikelihood", "consistent"):
        result = crf.fit(images[train], labels[train], objective)
        p = crf.infer(images[test], n_samples=64, probability="conditional", seed=3).probability
        losses.append(-np.log(np.take_along_axis(p, labels[test][..., None], -1)).mean(axis=(1, 2, 3)))
        kept.append(result)
    assert kept[1].gain is not None
    assert kept[1].gain > 0.005  # strong coupling leaves a gain over pseudolikelihood
    better = losses[0] - losses[1]  # per image, with the same noise
    assert better.mean() > -z_bound(1) * better.std() / np.sqrt(len(better))


def test_consistent_gradients_are_derivatives_of_the_reported_likelihood() -> None:
    """With fixed samples, the gradient is the derivative of the mean log of the averaged conditionals."""
    images, labels = random_data(3, (4, 4))
    parameters = Parameters(3, ("intensity",), ("constant", "difference"), 2)
    batch = Batch(ImageFeatures()(images), labels.reshape(3, -1).astype(np.int16), np.ones((1, 1)))
    objective = Objective(parameters, CpuKernels("numba"), l2=0.0)
    w = np.random.default_rng(12).normal(size=parameters.size)
    samples = sampler_of(parameters, "sites", 1)(batch, w, 5, 0, 0)
    value, gradient = objective(batch, w, samples)
    crf = lp.CRF(3)
    crf.parameters, crf._learned = parameters, parameters.expand(w)
    pot = crf.potentials(images)
    p = np.zeros((*labels.shape, 3))
    for m in range(5):
        scores = pot.local_scores(samples[:, :, m].reshape(labels.shape).astype(int))
        p += np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)) / 5
    assert value == pytest.approx(-np.log(np.take_along_axis(p, labels[..., None], -1)).sum(), rel=1e-10)
    direction = np.random.default_rng(13).normal(size=len(w))
    ahead, behind = (objective(batch, w + h * direction, samples)[0] for h in (1e-5, -1e-5))
    assert gradient @ direction == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


def test_a_fit_without_gain_reports_it_and_returns_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    images, labels = rng.normal(size=(10, 3, 3)), rng.integers(0, 3, (10, 3, 3))  # labels independent of the images
    monkeypatch.setattr(optimisers, "RATES", (50.0,))  # steps so large that every one increases the loss
    result = lp.CRF(3).fit(images, labels, options=lp.learning.FitOptions(batch_size=5))
    assert result.gain == 0
    assert result.status is lp.learning.FitStatus.NO_GAIN
    np.testing.assert_array_equal(result.w, 0)


def test_mini_batches_come_near_the_full_fit() -> None:
    images, labels = exact_images(1500, 3, 4, 1.0, 0.3, np.random.default_rng(15))
    whole = tied_potts_crf().fit(images, labels)
    some = tied_potts_crf().fit(images, labels, options=lp.learning.FitOptions(batch_size=200))
    assert whole.standard_errors is not None
    # A fifth is held out.  Descent stops when the held-out loss stops falling: within a few standard errors.
    assert np.abs((some.w - whole.w) / whole.standard_errors).max() < z_bound(3)


@pytest.mark.parametrize("case", ["weights", "sizes"])
def test_mini_batches_weight_images_as_the_objective_does(case: str) -> None:
    """Half of the images contradict the others, but have low weights or few pixels."""
    rng = np.random.default_rng(18)
    if case == "weights":
        shapes, weights = [(6, 6)] * 80, [1.0, 0.02] * 40
    else:
        shapes, weights = [(30, 30), (2, 2)] * 40, [1.0] * 80
    images = [rng.normal(size=shape) for shape in shapes]
    signs = [1, -1] * 40
    labels = [(sign * x + rng.logistic(size=x.shape) > 0).astype(int) for sign, x in zip(signs, images, strict=True)]
    whole, some = (
        tied_potts_crf()
        .fit(images, labels, site_weights=weights, options=lp.learning.FitOptions(batch_size=size), seed=3)
        .w[1]
        for size in (None, 8)
    )
    assert whole > 0.4
    assert abs(some - whole) < 0.1


def test_images_without_labels_are_ignored() -> None:
    images, labels = random_data(10, (4, 4))
    void = labels.copy()
    void[::2] = 9
    crf = lp.CRF(3, ignore_label=9)
    assert crf.fit(images, void, "consistent", options=lp.learning.FitOptions(max_iterations=1)).n_images <= 5
    crf.calibrate(images, void, max_evaluations=3)
    np.testing.assert_allclose(crf.fit(images, void).w, lp.CRF(3).fit(images[1::2], labels[1::2]).w, atol=1e-9)


def test_descent_returns_the_best_point_and_lowers_its_rate() -> None:
    """The gradient leads away from the start, which has the smallest held-out loss."""
    descent = Descent.start(np.ones(2), 0.0)
    checks: list[int] = []
    descend(
        descent,
        lambda point, step: (0.0, np.array([1.0, -1.0])),
        lambda point: float(((point - 1) ** 2).sum()),
        np.full(2, -np.inf),
        10_000,
        lambda state: checks.append(state.rate),
    )
    assert descent.finished
    np.testing.assert_array_equal(descent.best, np.ones(2))
    assert checks == [0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_steps_draw_new_samples_and_checks_reuse_theirs() -> None:
    images, labels = random_data(10, (3, 3))
    parameters = Parameters(3, ("intensity",), ("constant", "difference"), 2)
    batches = [Batch(ImageFeatures()(images), labels.reshape(10, -1).astype(np.int16), np.ones((1, 1)))]
    objective, data = Objective(parameters, CpuKernels("numba"), l2=0.0), read_dataset(parameters, batches)
    sampler, seeds = sampler_of(parameters, "sites", 1), []

    def watched(batch: Batch, w: np.ndarray, n_samples: int, seed: int, first_image: int) -> np.ndarray:
        seeds.append((n_samples, seed))
        return sampler(batch, w, n_samples, seed, first_image)

    control = Control(2, 0.0, 0, None, checkpoint.Checkpoint(None))
    fit_stochastic("consistent", objective, data, batches, np.zeros(parameters.size), control, watched)
    steps = [seed for n, seed in seeds if n == SAMPLES]
    assert len(steps) == len(set(steps)) == 30
    assert len({seed for n, seed in seeds if n == HELD_OUT_SAMPLES}) == 1
    assert not set(steps) & {seed for n, seed in seeds if n == HELD_OUT_SAMPLES}


@pytest.mark.parametrize("objective", ["consistent", "contrastive"])
def test_the_largest_seed_is_accepted(objective: str) -> None:
    images, labels = random_data(6, (3, 3))
    options = lp.learning.FitOptions(max_iterations=2)
    first, last = (lp.CRF(3).fit(images, labels, objective, seed=seed, options=options).w for seed in (0, 2**64 - 1))
    assert np.isfinite(last).all()
    assert (first != last).any()


def test_samples_are_void_exactly_at_void_sites() -> None:
    images, labels = random_data(2, (4, 4))
    parameters = Parameters(3, ("intensity",), ("constant", "difference"), 2)
    given = labels.reshape(2, -1).astype(np.int16)
    given[:, ::5] = VOID
    batch = Batch(ImageFeatures()(images), given, np.ones((1, 1)))
    samples = sampler_of(parameters, "sites", 1)(batch, np.ones(parameters.size), 6, 0, 0)
    assert samples.shape == (2, 16, 6)
    np.testing.assert_array_equal(samples == VOID, np.broadcast_to((given == VOID)[:, :, None], samples.shape))


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_samples_are_drawn_on_the_requested_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = random_data(10, (3, 3))
    devices = []

    def watched(potentials: lp.Potentials, decoder: lp.LocPMAP, **options: Any) -> Any:
        devices.append(options["device"])
        return lp.samples(potentials, decoder, **options)

    monkeypatch.setattr(fitting, "samples", watched)
    lp.CRF(3).fit(images, labels, "consistent", options=lp.learning.FitOptions(max_iterations=1), device=device)
    assert set(devices) == {device}


def test_images_are_held_out_or_sites_of_a_single_image() -> None:
    images, labels = random_data(10, (3, 3))
    many = [Batch(ImageFeatures()(images), labels.reshape(10, -1).astype(np.int16), np.ones((1, 1)))]
    training, held_out = split(many, 0.2, 0)
    assert sum(b.n_images for b in training) == 8
    assert sum(b.n_images for b in held_out) == 2
    one = [many[0].part(slice(0, 1))]
    training, held_out = split(one, 0.2, 0)
    np.testing.assert_array_equal(training[0].site_weights + held_out[0].site_weights, np.ones((1, 9)))


class Interrupted(Exception):
    """Stands for a keyboard interrupt."""


@pytest.mark.parametrize("objective", ["pseudolikelihood", "consistent", "contrastive"])
def test_an_interrupted_fit_resumes(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    images, labels = random_data(30)
    path = tmp_path / "state.safetensors"
    how: dict[str, Any] = {"tolerance": 1e-9} if objective == "pseudolikelihood" else {"max_iterations": 12}
    kept = lp.learning.FitOptions(checkpoint=path, **how)
    whole = lp.CRF(3).fit(images, labels, objective, options=lp.learning.FitOptions(**how))

    def interrupt(done: int, most: int, value: float) -> None:
        if path.exists():
            raise Interrupted

    with pytest.raises(Interrupted):
        lp.CRF(3).fit(images, labels, objective, options=kept, progress=interrupt)
    for other in ((images[1:], labels[1:]), (images, 2 - labels)):
        with pytest.raises(lp.InputError, match="another fit"):
            lp.CRF(3).fit(*other, objective, options=kept)
    with pytest.raises(lp.InputError, match="another fit"):
        lp.CRF(3, symmetric=True).fit(images, labels, objective, options=kept)
    resumed = lp.CRF(3).fit(images, labels, objective, options=kept)
    assert not path.exists()
    if objective != "pseudolikelihood":
        np.testing.assert_array_equal(resumed.w, whole.w)
        np.testing.assert_array_equal(resumed.curve, whole.curve)
    else:
        np.testing.assert_allclose(resumed.w, whole.w, atol=1e-5)


# files, calibration, bad input


def test_a_model_file_restores_the_whole_model(tmp_path: Path) -> None:
    images, labels = random_data()
    names = ("low", "middle", "high")
    crf = lp.CRF(3, label_names=names, ignore_label=7)
    crf.fit(images, labels)
    crf.calibrate(images, labels, n_samples=8, max_evaluations=5)
    crf.save(tmp_path / "model.safetensors")
    again = lp.CRF.load(tmp_path / "model.safetensors")
    assert again.label_names == names
    assert again.ignore_label == 7
    assert again.calibration == crf.calibration
    np.testing.assert_array_equal(again.weights, crf.weights)
    np.testing.assert_array_equal(again.tables, crf.tables)
    one, other = (model.infer(images, seed=5) for model in (crf, again))
    np.testing.assert_array_equal(one.probability, other.probability)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a fitted model."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    crf = lp.CRF(3)
    crf.fit(*random_data())
    crf.save(path)
    return path


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda h, a: h.update(gauge="other"), "gauge"),
        (lambda h, a: h["parameters"].update(potts=True), "tables"),
        (lambda h, a: h["parameters"].update(symmetric=True), "tables"),
        (lambda h, a: h["parameters"].update(n_labels=2), "weights"),
        (lambda h, a: h["parameters"].update(new=1), "malformed"),
        (lambda h, a: h["calibration"].update(scale=0.0), "calibration"),
        (lambda h, a: h["calibration"].update(scale="2"), "calibration"),
        (lambda h, a: h.update(ignore_label=[1]), "ignore_label"),
        (lambda h, a: h.update(label_names=["a", "b"]), "label_names"),
        (lambda h, a: h.update(features={"unary": 3}), "malformed"),
        (lambda h, a: h["features"].update(pairwise=["difference", "constant"]), "features"),
        (lambda h, a: h.update(kind="checkpoint"), "checkpoint"),
        (lambda h, a: a.update(weights=a["weights"] + 1), "weights"),
        (lambda h, a: a.pop("tables"), "malformed"),
    ],
)
def test_an_inconsistent_file_is_refused(change: Any, name: str, saved: Path, tmp_path: Path) -> None:
    arrays, header = read_model(saved)
    path = tmp_path / "model.safetensors"
    change(header, arrays)
    write_model(path, arrays, header)
    with pytest.raises(lp.InputError) as caught:
        lp.CRF.load(path)
    assert name in str(caught.value)
    assert str(path) in str(caught.value)


def test_decoding_uses_the_calibration() -> None:
    images, labels = random_data()
    crf = lp.CRF(3)
    crf.fit(images, labels)
    plain = crf.infer(images, temperature=3.0).probability
    crf.calibration = lp.crf.Calibration(temperature=3.0)
    np.testing.assert_array_equal(crf.infer(images).probability, plain)
    assert (crf.infer(images, temperature=1.0).probability != plain).any()


def test_calibration_corrects_overconfidence() -> None:
    rng = np.random.default_rng(16)
    logits = rng.normal(size=(150, 4, 4, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=-1)
    crf = lp.CRF(3, features=None, unary="scale", potts=True, tied=True)
    features = [Features.grid(x) for x in logits]
    crf.fit(features, list(labels))
    crf.weights[:3] *= 4
    found = crf.calibrate(features, list(labels), n_samples=16)
    assert found.after is not None
    assert found.before is not None
    assert found.after < found.before
    # The scale is the weight, 1, of a logistic regression: the Fisher information gives its standard error.
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    information = ((p * logits**2).sum(-1) - (p * logits).sum(-1) ** 2).sum()
    assert (
        abs(found.scale * crf.weights[0, 0] - 1) < z_bound(1) / np.sqrt(information) + 0.02
    )  # the search has a tolerance of 0.01


BAD: list[tuple[Any, str]] = [
    (lambda x, y: lp.CRF(1), "n_labels is 1"),
    (lambda x, y: lp.CRF(10**9), "n_labels is 1000000000, expected a whole number of at most 32767"),
    (lambda x, y: lp.CRF(3).fit(x, y, seed=2**64), "seed is 18446744073709551616"),
    (lambda x, y: lp.CRF(3).fit(x, y, options={}), "options is a dict, expected"),  # type: ignore[arg-type]
    (lambda x, y: lp.learning.FitOptions(max_iterations=0), "max_iterations is 0"),
    (lambda x, y: lp.learning.FitOptions(checkpoint=""), "checkpoint is '', expected the path of a file"),
    (lambda x, y: lp.learning.FitOptions(tolerance=-1.0), "tolerance is -1.0"),
    (
        lambda x, y: lp.CRF(3).fit(np.ma.masked_greater(x, 1), y),
        "image is a masked array with masked entries, expected a plain array: call its filled()",
    ),
    (
        lambda x, y: lp.CRF(3).fit(x, np.ma.masked_equal(y, 1)),
        "labels is a masked array with masked entries, expected a plain array: mark void sites by ignore_label",
    ),
    (lambda x, y: lp.CRF(3, label_names=["a"]), "label_names holds 1 names"),
    (lambda x, y: lp.CRF(3, non_negative=True).fit(x, y), "non_negative=True needs potts=True"),
    (lambda x, y: lp.CRF(3, unary="scale").fit(x, y), "expected 3 unary features, got 1"),
    (lambda x, y: lp.CRF(3, unary="scales").fit(x, y), "unary is 'scales'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "pseudolikelyhood"), "did you mean 'pseudolikelihood'"),
    (lambda x, y: lp.CRF(3).fit(x, y, blocks="rows"), "blocks is given with objective='pseudolikelihood'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "likelihood", blocks="rows"), "blocks is given with objective='likelihood'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "contrastive", blocks="row"), "did you mean 'rows'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "contrastive", blocks="clusters"), "blocks is 'clusters' with"),
    (lambda x, y: lp.CRF(3).fit(x, y, "consistent", n_steps=3), "n_steps is given with objective='consistent'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "contrastive", n_steps=-1), "n_steps is -1, expected a whole number"),
    (lambda x, y: lp.CRF(3).fit(x, y, "contrastive", n_steps=0), "n_steps is 0, expected a whole number"),
    (
        lambda x, y: lp.CRF(3).fit(x, y, "contrastive", site_weights=np.ones(y.shape)),
        "site weights differ within an image, expected one weight per image",
    ),
    (lambda x, y: lp.CRF(3).fit(x, y, "composite", blocks="row"), "did you mean 'rows'"),
    (lambda x, y: lp.CRF(3).fit(x, y, "likelihood"), "sum over 3^35 labellings"),
    (lambda x, y: lp.CRF(3).fit(x), "labels is missing"),
    (lambda x, y: lp.CRF(3).fit(x, y[:, :-1]), "labels has shape"),
    (lambda x, y: lp.CRF(2).fit(x, y), "labels contains 2, expected labels from 0 to 1"),
    (lambda x, y: lp.CRF(3).fit(x, y + 0.5), "expected integers"),
    (lambda x, y: lp.CRF(3, ignore_label=-1).fit(x, np.full_like(y, -1)), "no site has a label that counts"),
    (
        lambda x, y: lp.CRF(3, ignore_label=9).fit([(x[0], np.full_like(y[0], 9))]),
        "nothing but ignore_label=9",
    ),
    (lambda x, y: lp.CRF(3).fit(lambda: iter(())), "inputs is empty, expected at least one pair"),
    (lambda x, y: lp.CRF(3).fit(np.where(x > 0, np.nan, x), y), "contains nan"),
    (lambda x, y: lp.CRF(3).fit(list(x), list(y)[:-1]), "labels holds 11 entries"),
    (lambda x, y: lp.CRF(3).fit([], []), "inputs is empty"),
    (lambda x, y: lp.CRF(3).fit([(x[0], y[0]), x[1]]), "item 1 of the inputs"),
    (lambda x, y: lp.CRF(3).fit(x, y, l2=-1), "l2 is -1"),
    (lambda x, y: lp.CRF(3).fit(x * 1e160, y), "too large"),
    (lambda x, y: lp.CRF(3).fit(x, y, "consistent", validation=(x,)), "validation is a tuple"),  # type: ignore[arg-type]
    (lambda x, y: lp.CRF(3).fit(x[:1, :1, :1], y[:1, :1, :1], "consistent"), "too few labelled sites"),
    (
        lambda x, y: lp.CRF(3).fit(x[:3], y[:3], "composite", options=lp.learning.FitOptions(batch_size=2)),
        "batch_size needs five inputs",
    ),
    (lambda x, y: lp.CRF(3).fit(list(x), iter(y)), "labels is a"),
    (lambda x, y: lp.CRF(3, ignore_label=1), "one of the 3 labels"),
    (lambda x, y: lp.CRF(3).fit(x, y, backend="jax"), "backend"),
    (lambda x, y: lp.CRF(3).fit(x, y, device="cuda", backend="numba"), "runs on the CPU"),
    (lambda x, y: lp.CRF(3).fit(x, y, site_weights=-np.ones(12)), "site_weights"),
    (lambda x, y: lp.CRF(3).infer(x), "no weights yet"),
    (lambda x, y: lp.CRF(3).save("model"), "no weights yet"),
    (lambda x, y: lp.CRF(3, features=None).fit(x, y), "expected Features"),
    (lambda x, y: lp.CRF(3).fit(x, y, progress=3), "progress is 3"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_errors_name_the_bad_input(call: Any, message: str) -> None:
    images, labels = random_data()
    with pytest.raises((lp.InputError, lp.errors.InputTypeError, lp.BackendError)) as caught:
        call(images, labels)
    assert message in str(caught.value)


def test_a_failed_fit_does_not_change_the_model() -> None:
    images, labels = random_data()
    crf = lp.CRF(3)
    crf.fit(images, labels)
    before = crf.weights
    with pytest.raises(lp.InputError):
        crf.fit(images, labels + 1)
    assert crf.weights is before


def test_six_directions_have_separate_weights_and_other_directions_are_refused(tmp_path: Path) -> None:
    steps = ((0, 1), (1, 0), (0, 3), (3, 0), (0, 5), (5, 0))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (4, 8, 9))
    labels[:, :, 3:] = labels[:, :, :-3]  # equal to the label three columns to the left, otherwise independent
    scores = np.zeros((*labels.shape, 2))

    def features(connectivity: Any) -> Features:
        shapes = Grid(8, 9, connectivity).direction_shapes
        return Features.grid(scores, tuple(np.ones((*shape, 1)) for shape in shapes), connectivity=connectivity)

    crf = lp.CRF(2, features=None, unary="given", potts=True)
    result = crf.fit(features(steps), labels)
    weights = dict(zip(result.names, result.w, strict=True))
    assert list(weights)[2] == "feature 0 (step (0, 3)), agree"
    assert max(weights, key=weights.__getitem__) == "feature 0 (step (0, 3)), agree"
    crf.save(tmp_path / "model.safetensors")
    again = lp.CRF.load(tmp_path / "model.safetensors")
    weights_again = again.potentials(features(steps)).pairwise.weights
    assert weights_again is not None
    assert (weights_again[2] == crf.tables[2, 0, 0, 0]).all()
    with pytest.raises(lp.InputError, match=r"has the edges horizontal, .* expected horizontal, vertical, step"):
        again.potentials(features((*steps[:-1], (7, 0))))


@pytest.mark.parametrize(
    ("name", "value"), [("standard_errors", "no"), ("checkpoint", 3), ("processes", None), ("tolerance", "small")]
)
def test_options_of_a_fit_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InputTypeError, match=rf"^{name} is "):
        FitOptions(**{name: value})
    half: Any = np.float32(0.5)
    assert FitOptions(tolerance=half).tolerance == half
