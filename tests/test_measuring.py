"""Measured quantities compared with closed forms, enumeration and loops; batches, masks, memory and bad input."""

from __future__ import annotations

import functools
import itertools
import math
import pickle
import statistics
import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import grid_edges, structure_edges
from tests.oracles.statistics import chi_square_p_value

import locpmap as lp
from locpmap.measuring.quantities import NAMES, named_quantity

SIGMAS = 4.0


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


# independent sites, with closed forms

HEIGHT, WIDTH, LABELS, SAMPLES = 4, 5, 3, 4000
INDEPENDENT = np.random.default_rng(1).normal(size=(HEIGHT, WIDTH, LABELS))
P = np.exp(INDEPENDENT) / np.exp(INDEPENDENT).sum(axis=-1, keepdims=True)


def independent(quantity: Any, **options: Any) -> lp.Measurement:
    return lp.measure(lp.Potentials.grid(INDEPENDENT, 0.0), quantity, lp.LocPMAP(n_samples=SAMPLES), seed=4, **options)


def poisson_binomial(p: np.ndarray) -> np.ndarray:
    """Return the probabilities of 0 .. len(p) successes."""
    pmf = np.ones(1)
    for one in p:
        pmf = np.convolve(pmf, [1 - one, one])
    return pmf


def test_mean_and_variance_of_the_area() -> None:
    found = independent("area")
    p = P.reshape(-1, LABELS)
    variance = (p * (1 - p)).sum(axis=0)
    assert (np.abs(found.mean - p.sum(axis=0)) < SIGMAS * np.sqrt(variance / SAMPLES)).all()
    fourth = 3 * variance**2 + (p * (1 - p) * (1 - 6 * p * (1 - p))).sum(axis=0)  # central moment of the sum
    error = np.sqrt((fourth - variance**2 * (SAMPLES - 3) / (SAMPLES - 1)) / SAMPLES)
    assert (np.abs(found.std**2 - variance) < SIGMAS * error).all()
    np.testing.assert_allclose(found.standard_error, found.std / math.sqrt(SAMPLES))


def test_histogram_and_quantiles_of_the_area() -> None:
    found = independent("area")
    n_sites = HEIGHT * WIDTH
    counts = np.stack([np.histogram(values, np.arange(n_sites + 2) - 0.5)[0] for values in found.values.T])
    assert counts.shape == (LABELS, n_sites + 1)
    for label in range(LABELS):
        pmf = poisson_binomial(P[..., label].ravel())
        assert counts[label].sum() == SAMPLES
        assert chi_square_p_value(counts[label], pmf) > 1e-4
        low, high = (end[label] for end in found.interval(0.9))
        values = np.arange(n_sites + 1)
        assert pmf[(values >= low) & (values <= high)].sum() > 0.9 - SIGMAS * math.sqrt(0.09 / SAMPLES)
        assert pmf[(values > low) & (values < high)].sum() < 0.9 + SIGMAS * math.sqrt(0.09 / SAMPLES)


def test_mean_presence_is_the_probability_of_occurring() -> None:
    found = independent("presence")
    absent = (1 - P).reshape(-1, LABELS).prod(axis=0)
    assert (np.abs(found.mean - (1 - absent)) <= SIGMAS * np.sqrt(absent * (1 - absent) / SAMPLES)).all()
    rare = np.stack([np.zeros((2, 2)), np.full((2, 2), -2.0)], axis=-1)
    often = lp.measure(lp.Potentials.grid(rare, 0.0), "presence", lp.LocPMAP(n_samples=SAMPLES))
    truth = 1 - (1 / (1 + math.exp(-2))) ** 4
    assert abs(often.mean[1] - truth) < SIGMAS * math.sqrt(truth * (1 - truth) / SAMPLES)


def test_mean_perimeter_and_mean_components_of_a_row() -> None:
    perimeter = independent("perimeter")
    p, edges = P.reshape(-1, LABELS), grid_edges(HEIGHT, WIDTH)
    a, b = p[edges[:, 0]], p[edges[:, 1]]
    expected = (a * (1 - b) + b * (1 - a)).sum(axis=0)
    assert (np.abs(perimeter.mean - expected) < SIGMAS * perimeter.standard_error).all()
    row = lp.measure(lp.Potentials.grid(INDEPENDENT[:1], 0.0), "components", lp.LocPMAP(n_samples=SAMPLES))
    expected = P[0].sum(axis=0) - (P[0, :-1] * P[0, 1:]).sum(axis=0)  # sites that differ from their left neighbour
    assert (np.abs(row.mean - expected) < SIGMAS * row.standard_error).all()


# coupled sites

POTTS = np.random.default_rng(2).normal(size=(2, 3, 2))


@pytest.mark.parametrize("quantity", NAMES)
def test_single_block_samples_match_the_exact_distribution(quantity: str) -> None:
    """Compare with enumeration: samples from one block of all sites are exact."""
    pot = lp.Potentials.grid(POTTS, 0.8)
    found = lp.measure(pot, quantity, lp.LocPMAP(n_samples=SAMPLES, blocks=(2, 3)), seed=1)
    tables = np.broadcast_to(0.8 * np.eye(2), (7, 2, 2))
    log_partition = Enumeration(POTTS.reshape(6, 2), grid_edges(2, 3), tables).log_partition
    labellings = np.array(list(itertools.product(range(2), repeat=6))).reshape(-1, 2, 3)
    p = np.array([math.exp(pot.score(y) - log_partition) for y in labellings])
    assert p.sum() == pytest.approx(1)
    numbers = np.array([brute(quantity, y.ravel(), 2, grid_edges(2, 3)) for y in labellings])
    for label in range(2):
        probability = np.bincount(numbers[:, label], p, minlength=8)
        counts = np.bincount(found.values[:, label].astype(int), minlength=8)
        assert chi_square_p_value(counts, probability) > 1e-4


@pytest.mark.parametrize("quantity", NAMES)
def test_statistics_match_a_loop_over_samples(quantity: str) -> None:
    pot = lp.Potentials.grid(np.random.default_rng(5).normal(size=(4, 3, 3)), 0.9)
    found = lp.measure(pot, quantity, lp.LocPMAP(n_samples=150), seed=7, quantiles=(0.1, 0.5))  # more than one round
    samples = lp.infer(pot, "locpmap", n_samples=150, seed=7, keep_samples=True).samples
    by_hand = [brute(quantity, y.ravel(), 3, grid_edges(4, 3)) for y in samples]
    np.testing.assert_array_equal(found.values, by_hand)
    for label, column in enumerate(zip(*by_hand, strict=True)):
        assert found.mean[label] == pytest.approx(statistics.fmean(column))
        assert found.std[label] == pytest.approx(statistics.stdev(column))
        assert found.standard_error[label] == pytest.approx(statistics.stdev(column) / math.sqrt(150))
        assert found.quantiles[1, label] == pytest.approx(statistics.median(column))
        deciles = statistics.quantiles(column, n=10, method="inclusive")
        assert found.quantiles[0, label] == pytest.approx(deciles[0])
        low, high = found.interval(0.8)
        assert (low[label], high[label]) == pytest.approx((deciles[0], deciles[-1]))


def test_result_and_potentials_give_the_same_values(rng: np.random.Generator) -> None:
    pot = lp.Potentials.grid(rng.normal(size=(3, 5, 6, 3)), (rng.random((3, 5, 5)), rng.random((4, 6))))
    result = lp.infer(pot, lp.LocPMAP(n_samples=70, keep_samples=True), seed=9, first_image=4)
    for quantity in (*NAMES, lambda y: y.sum(axis=0)):
        drawn = lp.measure(pot, quantity, lp.LocPMAP(n_samples=70), seed=9, first_image=4)
        np.testing.assert_array_equal(lp.measure(result, quantity).values, drawn.values)


def test_gibbs_samples_and_tensors_are_accepted(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    unary = rng.normal(size=(2, 3, 4, 2))
    result = lp.infer(lp.Potentials.grid(torch.from_numpy(unary), 0.5), "gibbs", n_samples=20, keep_samples=True)
    assert isinstance(result.samples, torch.Tensor)
    found = lp.measure(result, "area")
    np.testing.assert_array_equal(found.values[..., 1], (result.samples.numpy() == 1).sum(axis=(2, 3)))
    plain, tensor = (lp.measure(lp.Potentials.grid(u, 0.5), "area") for u in (unary, torch.from_numpy(unary)))
    np.testing.assert_array_equal(plain.values, tensor.values)
    assert isinstance(tensor.mean, np.ndarray)


# quantities compared with loops


def brute(quantity: str, labels: Any, n_labels: int, edges: np.ndarray) -> list[int]:
    """Compute a quantity of flat labels with loops over edges."""
    labels = [int(label) for label in labels]
    if quantity in ("area", "presence"):
        areas = [labels.count(k) for k in range(n_labels)]
        return areas if quantity == "area" else [int(n > 0) for n in areas]
    neighbours: dict[int, list[int]] = {site: [] for site in range(len(labels))}
    for i, j in edges.tolist():
        neighbours[i].append(j)
        neighbours[j].append(i)
    counts = [0] * n_labels
    if quantity == "perimeter":
        for site, label in enumerate(labels):
            if label >= 0:
                counts[label] += sum(labels[other] not in (label, -1) for other in neighbours[site])
        return counts
    seen: set[int] = set()
    for site, label in enumerate(labels):
        if label < 0 or site in seen:
            continue
        counts[label] += 1
        queue = [site]
        while queue:
            here = queue.pop()
            if here not in seen:
                seen.add(here)
                queue += [other for other in neighbours[here] if labels[other] == label]
    return counts


@pytest.mark.parametrize("quantity", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 6), (8, 8)], ids=str)
def test_quantities_of_random_maps_match_loops(quantity: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Use a model with 8 neighbours: components are still 4-connected."""
    on_grid = named_quantity(quantity, lp.graphs.Grid(*shape, connectivity=8), 4)
    edges = grid_edges(*shape)
    on_graph = named_quantity(quantity, lp.graphs.Graph(shape[0] * shape[1], edges), 4)
    for _ in range(30):
        labels = rng.integers(-1, 3, size=shape)  # -1: masked; label 3 does not occur
        expected = brute(quantity, labels.ravel(), 4, edges)
        assert on_grid(labels).tolist() == expected
        assert on_graph(labels.ravel()).tolist() == expected


@pytest.mark.parametrize("quantity", NAMES)
@pytest.mark.parametrize("structure", ["full", "star", "tree", "cycle"])
def test_quantities_on_graphs_match_loops(quantity: str, structure: str, rng: np.random.Generator) -> None:
    edges = structure_edges(structure, 9, rng)
    pot = lp.Potentials.graph(rng.normal(size=(2, 9, 3)), edges, 0.3, mask=np.arange(9) == 4)
    found = lp.measure(pot, quantity, lp.LocPMAP(n_samples=20))
    samples = lp.infer(pot, "locpmap", n_samples=20, keep_samples=True).samples
    by_hand = [[brute(quantity, y, 3, edges) for y in sample] for sample in samples]
    np.testing.assert_array_equal(found.values, by_hand)


# batches, masks, options


def batch(rng: np.random.Generator) -> dict[str, lp.Potentials]:
    """Return potentials of a batch of three images and of each image alone, for each form of pairwise term."""
    unary, mask = rng.normal(size=(3, 4, 5, 3)), rng.random((3, 4, 5)) < 0.2
    across, down = rng.random((3, 4, 4)), rng.random((3, 3, 5))
    tables = (rng.normal(size=(3, 4, 4, 3, 3)), rng.normal(size=(3, 3, 5, 3, 3)))
    features = (rng.random((3, 4, 4, 2)), rng.random((3, 3, 5, 2)))
    factors = rng.normal(size=(2, 3, 3))
    cases = {}
    for n in (slice(None), 0, 1, 2):
        cases[f"weights {n}"] = lp.Potentials.grid(unary[n], (across[n], down[n]))
        cases[f"masked {n}"] = lp.Potentials.grid(unary[n], (across[n], down[n]), mask=mask[n])
        cases[f"shared {n}"] = lp.Potentials.grid(unary[n], 0.4, mask=mask[1])
        cases[f"tables {n}"] = lp.Potentials.grid(unary[n], (tables[0][n], tables[1][n]))
        cases[f"factored {n}"] = lp.Potentials.grid(unary[n], lp.Factored((features[0][n], features[1][n]), factors))
    return cases


@pytest.mark.parametrize("kind", ["weights", "masked", "shared", "tables", "factored"])
def test_batch_equals_its_single_images(kind: str, rng: np.random.Generator) -> None:
    cases = batch(rng)
    together = lp.measure(cases[f"{kind} {slice(None)}"], "perimeter", lp.LocPMAP(n_samples=80), seed=2, first_image=10)
    assert together.mean.shape == together.std.shape == (3, 3)
    assert together.quantiles.shape == (3, 3, 3)
    for n in range(3):
        alone = lp.measure(cases[f"{kind} {n}"], "perimeter", lp.LocPMAP(n_samples=80), seed=2, first_image=10 + n)
        np.testing.assert_array_equal(alone.values, together.values[:, n])
        np.testing.assert_array_equal(alone.quantiles, together.quantiles[:, n])
        np.testing.assert_array_equal(alone.interval()[1], together.interval()[1][n])
    assert (together.values[:, 0] != together.values[:, 1]).any()


def test_start_may_differ_between_images() -> None:
    """Climb without noise, where strong couplings preserve the start of each image."""
    start = np.stack([np.zeros((3, 3), int), np.ones((3, 3), int)])
    pot = lp.Potentials.grid(np.zeros((2, 3, 3, 2)), 5.0)
    found = lp.measure(pot, "area", lp.LocPMAP(n_samples=3, start=start, temperature=0.0))
    np.testing.assert_array_equal(found.mean, [[9, 0], [0, 9]])
    alone = lp.measure(
        lp.Potentials.grid(np.zeros((3, 3, 2)), 5.0), "area", lp.LocPMAP(n_samples=3, start=start[1], temperature=0)
    )
    np.testing.assert_array_equal(alone.mean, [0, 9])


def test_options_are_passed_to_locpmap(rng: np.random.Generator) -> None:
    pot = lp.Potentials.grid(rng.normal(size=(4, 4, 2)), 0.7)
    for options in ({"blocks": "rows"}, {"temperature": 3.0}, {"start": "perturbed"}):
        result = lp.infer(pot, "locpmap", n_samples=40, keep_samples=True, seed=5, **options)
        found = lp.measure(pot, "area", lp.LocPMAP(n_samples=40, **options), seed=5)
        np.testing.assert_array_equal(found.values, lp.measure(result, "area").values)


def test_masked_sites_are_ignored() -> None:
    mask = np.array([[False, True, False]])
    pot = lp.Potentials.grid(np.array([[[0.0, 9.0], [9.0, 0.0], [0.0, 9.0]]]) * 1e3, 0.0, mask=mask)
    for quantity, expected in (("area", [0, 2]), ("presence", [0, 1]), ("components", [0, 2]), ("perimeter", [0, 0])):
        assert lp.measure(pot, quantity, lp.LocPMAP(n_samples=5)).mean.tolist() == expected
    assert lp.measure(pot, lambda y: y.ravel(), lp.LocPMAP(n_samples=5)).mean.tolist() == [1, -1, 1]


def test_callable_receives_a_copy_of_each_map(rng: np.random.Generator) -> None:
    pot = lp.Potentials.grid(rng.normal(size=(2, 3, 4, 2)), 0.5)
    result = lp.infer(pot, "locpmap", n_samples=30, keep_samples=True)

    def overwrite(labels: np.ndarray) -> float:
        assert labels.shape == (3, 4)
        assert labels.dtype == np.int64
        value = float(labels.mean())
        labels[:] = 7
        return value

    before = result.samples.copy()
    found = lp.measure(result, overwrite)
    assert found.quantity == "overwrite"
    np.testing.assert_allclose(found.values[..., 0], before.mean(axis=(2, 3)))
    np.testing.assert_array_equal(result.samples, before)
    np.testing.assert_array_equal(
        lp.measure(result, lambda y: [(y == 0).sum(), (y == 1).sum()]).values, lp.measure(result, "area").values
    )
    assert lp.measure(result, lambda y: bool(y.any())).mean.shape == (2, 1)


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_progress_is_called_after_each_sample(shared: float, rng: np.random.Generator) -> None:
    calls: list[tuple[int, int]] = []
    potentials = lp.Potentials.grid(rng.normal(size=(2, 4, 5, 2)), 0.5)
    decoder = lp.LocPMAP(n_samples=5, fields=lp.ErrorFields(shared=shared))
    lp.measure(potentials, "area", decoder, progress=lambda *call: calls.append(call))
    assert calls == [(n, 10) for n in range(1, 11)]
    calls.clear()
    result = lp.infer(potentials, "locpmap", n_samples=3, keep_samples=True)
    lp.measure(result, "area", progress=lambda *call: calls.append(call))
    assert calls == [(n, 6) for n in range(1, 7)]


def test_label_maps_are_not_stored(rng: np.random.Generator) -> None:
    """Check the peak memory: 2 to 3 MB for a round of 64 maps, 17 MB for all maps."""
    pot, n_samples = lp.Potentials.grid(rng.normal(size=(64, 64, 2)), 0.5), 2048
    lp.measure(pot, "area", lp.LocPMAP(n_samples=8))  # compile first
    tracemalloc.start()
    try:
        lp.measure(pot, "area", lp.LocPMAP(n_samples=n_samples))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_samples * pot.n_sites * np.dtype(np.int16).itemsize / 3


# the result


def test_std_of_one_sample_is_nan() -> None:
    found = lp.measure(lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0), "area", lp.LocPMAP(n_samples=1))
    assert np.isnan(found.std).all()
    assert np.isnan(found.standard_error).all()
    np.testing.assert_array_equal(found.quantiles[0], found.mean)
    assert "nan" in repr(found)


def test_repr_is_a_table() -> None:
    pot = lp.Potentials.grid(np.zeros((2, 3, 3, 2)), 0.3)
    lines = repr(lp.measure(pot, "area", lp.LocPMAP(n_samples=10), names=["sky", "a long name"])).splitlines()
    assert lines[0] == "area in pixels, batch of 2, 10 samples"
    assert lines[1].split() == ["image", "label", "5%", "50%", "95%", "mean", "std", "std", "error"]
    assert len({len(line) for line in lines[1:]}) == 1
    assert [line.split()[0] for line in lines[2:]] == ["0", "0", "1", "1"]
    assert "a long name" in lines[-1]
    many = repr(lp.measure(pot, lambda y: np.arange(20), lp.LocPMAP(n_samples=2))).splitlines()
    assert many[-1] == ".. and 16 more rows"
    assert "entry" in many[1]
    large = lp.Measurement("area", np.full((2, 1), 262144.4), ("0",), (0.5,))
    assert " 262144 " in str(large)


def test_measurement_can_be_pickled_and_is_read_only() -> None:
    found = lp.measure(lp.Potentials.grid(np.zeros((2, 2, 2)), 0.3), "area", lp.LocPMAP(n_samples=4))
    back = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(back.mean, found.mean)
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 1


# bad input

SMALL = lp.Potentials.grid(np.zeros((2, 2, 2)), 0.3)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((np.zeros((2, 2)), "area"), {}, lp.errors.InputTypeError, "what is a ndarray, expected Potentials"),
        ((SMALL, "aera"), {}, lp.InputError, "unknown quantity 'aera': did you mean 'area'"),
        ((SMALL, 3), {}, lp.errors.InputTypeError, "quantity is 3, expected 'area'"),
        ((SMALL, "area"), {"quantiles": (0.5, 1.5)}, lp.InputError, r"quantiles is \(0.5, 1.5\), expected"),
        ((SMALL, "area"), {"quantiles": 0.5}, lp.InputError, "quantiles is 0.5"),
        ((SMALL, "area"), {"quantiles": ()}, lp.InputError, r"quantiles is \(\)"),
        ((SMALL, "area"), {"quantiles": [float("nan")]}, lp.InputError, r"quantiles is \[nan\]"),
        ((SMALL, "area"), {"quantiles": "median"}, lp.errors.InputTypeError, "quantiles"),
        ((SMALL, "area", lp.LocPMAP(2**31 - 1)), {}, lp.InputError, "n_samples is 2147483647, which gives 4294967294"),
        ((SMALL, np.max, lp.LocPMAP(2**31 - 1)), {}, lp.InputError, "n_samples is 2147483647, which gives 2147483647"),
        ((SMALL, "area", lp.Gibbs()), {}, lp.errors.InputTypeError, "decoder is Gibbs"),
        ((SMALL, "area", 200), {}, lp.errors.InputTypeError, "decoder is 200, expected a LocPMAP"),
        ((SMALL, "area"), {"seed": -1}, lp.InputError, "seed is -1"),
        ((SMALL, "area"), {"seed": 2**64}, lp.InputError, f"seed is {2**64}"),
        ((SMALL, "area"), {"first_image": -1}, lp.InputError, "first_image is -1"),
        ((SMALL, "area"), {"first_image": 2**28}, lp.InputError, f"first_image is {2**28}"),
        ((SMALL, "area"), {"names": ["one"]}, lp.InputError, "names has 1 entries, expected 2"),
        ((SMALL, np.mean), {"names": ["one", "two"]}, lp.InputError, "names has 2 entries, expected 1"),
        ((SMALL, "area"), {"names": "ab"}, lp.errors.InputTypeError, "names is 'ab'"),
        ((SMALL, "area"), {"names": [1, 2]}, lp.errors.InputTypeError, r"names is \[1, 2\]"),
        ((SMALL, "area"), {"progress": 5}, lp.errors.InputTypeError, "progress is 5"),
        ((SMALL, "area", lp.LocPMAP(start=np.zeros((3, 3), int))), {}, lp.InputError, r"start has shape \(3, 3\)"),
        ((SMALL, lambda y: None), {}, lp.errors.InputTypeError, "the value of quantity is None"),
        ((SMALL, lambda y: "much"), {}, lp.errors.InputTypeError, "the value of quantity"),
        ((SMALL, lambda y: y), {}, lp.InputError, r"quantity returned an array of shape \(2, 2\)"),
        ((SMALL, lambda y: []), {}, lp.InputError, r"quantity returned an array of shape \(0,\)"),
        ((SMALL, lambda y: np.nan), {}, lp.InputError, "quantity returned nan, expected finite"),
        ((SMALL, lambda y: y[y == 0] + 1), {}, lp.InputError, "quantity returned"),
        (
            (lp.infer(SMALL, "icm", backend="reference"), "area"),
            {},
            lp.InputError,
            "the result of icm has no samples, expected one with them",
        ),
    ],
)
def test_bad_input_is_refused(arguments: Any, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        lp.measure(*arguments, **options)


@pytest.mark.parametrize(
    ("decoder", "given"), [(lp.Gibbs(), "Gibbs"), ("locpmap", "'locpmap', expected a LocPMAP"), (200, "200")]
)
def test_other_decoders_are_refused_with_a_refiner(decoder: Any, given: str) -> None:
    with pytest.raises(lp.errors.InputTypeError, match=f"decoder is {given}"):
        lp.Refiner.load().measure(None, np.zeros((9, 9, 2)), "area", decoder)


@pytest.mark.parametrize("given", [{"decoder": lp.LocPMAP()}, {"seed": 1}, {"first_image": 1}, {"device": "cpu"}])
def test_sampling_options_are_refused_with_a_result(given: dict[str, Any]) -> None:
    result = lp.infer(SMALL, "locpmap", n_samples=4, keep_samples=True)
    with pytest.raises(lp.InputError, match=f"{next(iter(given))} cannot be given"):
        lp.measure(result, "area", **given)


@pytest.mark.parametrize("level", [0, 1, -0.5, float("nan")])
def test_invalid_interval_levels_are_refused(level: float) -> None:
    with pytest.raises(lp.InputError, match="level is"):
        lp.measure(SMALL, "area", lp.LocPMAP(n_samples=3)).interval(level)
    with pytest.raises(lp.errors.InputTypeError, match=r"level is '0\.9'"):
        lp.measure(SMALL, "area", lp.LocPMAP(n_samples=3)).interval("0.9")  # type: ignore[arg-type]


def test_refined_results_draw_samples_of_their_refiner() -> None:
    rng = np.random.default_rng(0)
    image, logits = rng.integers(0, 255, (2, 16, 20, 3)), rng.normal(size=(2, 4, 5, 3))
    result = lp.refine(image, logits)
    expected = lp.Refiner.load().measure(image, logits, "area", lp.LocPMAP(9), seed=3)
    for found in (result, pickle.loads(pickle.dumps(result))):
        area = found.measure("area", decoder=lp.LocPMAP(9), seed=3, names=("sea", "sand", "rock"))
        np.testing.assert_array_equal(area.values, expected.values)
        assert (area.names, area.source) == (("sea", "sand", "rock"), expected.source)
    assert result.measure("area").values.shape == (200, 2, 3)
    assert isinstance(result.meter, functools.partial)
    assert "marginals" not in vars(result.meter.args[0])  # as large as the probabilities
    with pytest.raises(lp.InputError, match=r"the result of icm has no refiner .*: use lp\.measure"):
        lp.infer(SMALL, "icm", backend="reference").measure("area")
