"""Likelihoods of sites in Triton: the reference's values and slopes, on odd shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.test_likelihood_kernels import SITES, Case, Problem, check_same, draw
from tests.triton.placing import DEVICE, place, place_model

from locpmap.graphs import Graph, Grid
from locpmap.kernels.observations import Observations
from locpmap.kernels.perturbation import PLAIN, RANDOM, Perturbation
from locpmap.kernels.triton import binary_margins, binary_sites, keeping, linear_scores
from locpmap.kernels.triton.operators import operator
from locpmap.kernels.triton.site_likelihood import site_likelihood
from locpmap.kernels.triton.slot_rows import slot_rows
from locpmap.potentials import Potentials

every_case = pytest.mark.parametrize("case", SITES.values(), ids=SITES.keys())


def place_data(problem: Problem) -> Observations:
    return Observations(*(place(array) for array in problem.data))


def evaluate(problem: Problem, images: Any = None, window: Any = None) -> tuple[Any, ...]:
    """Value and slopes in Triton, added to nothing."""
    parts = (*(images or (0, len(problem.labels))), *(window or (0, problem.n_windows)))
    arrays = (problem.labels, problem.samples, problem.importance, problem.weights, problem.tables)
    sums = (np.zeros(1), np.zeros_like(problem.weights), np.zeros_like(problem.tables))
    out = tuple(place(array) for array in sums)
    site_likelihood(place_data(problem), *(place(array) for array in arrays), *out, *parts)
    value, slope, table_slope = (tensor.cpu().numpy() for tensor in out)
    return float(value[0]), slope, table_slope


def expected(problem: Problem, *part: Any) -> tuple[Any, ...]:
    return problem.evaluate("reference", problem.weights, problem.tables, *part)


@every_case
def test_value_and_slopes(case: Case) -> None:
    problem = draw(case)
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["3x5", "samples", "graph"])
def test_part_of_the_images_and_sites(name: str) -> None:
    problem = draw(replace(SITES[name], n_images=3))
    part = ((1, 3), (2, problem.n_windows - 1))
    check_same(evaluate(problem, *part), expected(problem, *part))


def test_no_images_or_sites() -> None:
    problem = draw(SITES["3x5"])
    for part in (((1, 1), (0, 15)), ((0, 2), (4, 4))):
        check_same(evaluate(problem, *part), expected(problem, *part))


def test_a_program_takes_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_scores, "MAX_PROGRAMS", 2)
    problem = draw(replace(SITES["3x5"], n_images=5))
    check_same(evaluate(problem), expected(problem))


def generic(problem: Problem) -> Problem:
    """The same with the true labels, a second time, as a second sample."""
    return replace(problem, samples=np.repeat(problem.samples, 2, axis=2))


def test_two_equal_samples_are_one() -> None:
    problem = draw(replace(SITES["3x5"], n_images=3, weighted=True))
    check_same(evaluate(generic(problem)), evaluate(problem))


TWO_LABELS = {name: SITES[name] for name in ("3x5", "three features", "one for all", "two labels on a graph")} | {
    "eight": replace(SITES["eight"], n_labels=2, n_unary=3),
    "one feature": replace(SITES["3x5"], n_unary=0, n_pairwise=1),
}


@pytest.mark.parametrize("many", [pytest.param(1, marks=pytest.mark.slow), 100])
@pytest.mark.parametrize("case", TWO_LABELS.values(), ids=TWO_LABELS.keys())
def test_two_labels_in_small_tiles(case: Case, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs go from tile to tile, add up before they are done, and stop within a group of images."""
    small = {"LANES": 4, "WARPS": 1, "STEPS_PER_SUM": 3, "FACTORS": 2, "MANY_IMAGES": many, "OTHER_REGISTERS": -999}
    for constant, value in small.items():
        monkeypatch.setattr(binary_sites, constant, value)
    problem = draw(replace(case, n_images=11))
    assert binary_sites.is_binary(*(place_data(problem), place(problem.tables), 1))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("n_images", [1, 4, 7, 8, 9])
def test_some_images_ahead(n_images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of one image's sites; steps of four images, the last of which shares some with the one before."""
    for constant, value in {"LANES": 16, "WARPS": 1, "OTHER_REGISTERS": -999}.items():
        monkeypatch.setattr(binary_sites, constant, value)
    problem = draw(replace(SITES["3x5"], structure=Grid(4, 4), n_images=n_images + 1))
    part = ((1, n_images + 1), (0, 16))
    check_same(evaluate(problem, *part), expected(problem, *part))


def test_one_sample_other_than_the_labels() -> None:
    problem = draw(SITES["3x5"])
    samples = np.random.default_rng(1).integers(-1, 2, problem.samples.shape).astype(np.int16)
    problem = replace(problem, samples=samples)
    check_same(evaluate(problem), expected(problem))


def check_tensors(problem: Problem, data: Observations, labels: Any, near: Any) -> None:
    """The same as the reference's for what the tensors hold now."""
    given = tuple(place(array) for array in (problem.importance, problem.weights, problem.tables))
    sums = tuple(place(np.zeros(shape)) for shape in (1, problem.weights.shape, problem.tables.shape))
    part: tuple[int, ...] = (0, len(labels), 0, labels.shape[1])
    site_likelihood(data, labels, near, *given, *sums, *part)
    true, samples = (tensor.cpu().numpy().copy() for tensor in (labels, near))
    right = expected(replace(problem, labels=true, samples=samples))
    check_same(tuple(tensor.cpu().numpy() for tensor in sums), right)


def test_labels_that_are_written_to() -> None:
    """What is kept of labels is that of these labels only, and of their last state only."""
    problem = draw(SITES["3x5"])
    data, labels = place_data(problem), place(problem.labels)
    for _ in range(3):
        check_tensors(problem, data, labels, labels[:, :, None])
        labels[:, 3:9] = 1 - labels[:, 3:9].abs()
    (kept,) = (kept for key, (_, kept) in keeping._kept.items() if id(labels) in key)
    assert len(kept) == 1


def test_labels_that_an_operator_writes_to() -> None:
    """Such as a sample of which the likelihood is asked."""
    problem = draw(replace(SITES["3x5"], void=0.0))
    data, drawn = place_data(problem), place(problem.samples)
    labels = drawn[:, :, 0]
    check_tensors(problem, data, labels, drawn)
    potentials = Potentials.grid(np.random.default_rng(1).normal(size=(2, 3, 5, 2)), 0.5)
    given = torch.empty((0, 0), dtype=torch.int64, device=DEVICE)
    how = (Perturbation(PLAIN, 1.0, 1, 2), RANDOM, given, 5, 0, 0, 2, 0)
    operator("climb_sites")(place_model(potentials), *how, drawn)
    assert (drawn.cpu().numpy() != problem.samples).any()
    check_tensors(problem, data, labels, drawn)


def test_operators_tell_that_they_have_written() -> None:
    labels = torch.zeros((1, 4, 3), dtype=torch.uint8, device=DEVICE)
    totals = torch.zeros((1, 4, 2), dtype=torch.int32, device=DEVICE)
    before = totals._version
    operator("votes")(labels, totals, 0, 4)
    assert totals._version > before
    assert labels._version == 0


def test_one_image_as_the_neighbours_of_all() -> None:
    """An expanded view begins where the labels do."""
    problem = draw(SITES["3x5"])
    labels = place(problem.labels)
    check_tensors(problem, place_data(problem), labels, labels[:1, :, None].expand(2, 15, 1))


@pytest.mark.parametrize("strided", [False, True])
def test_labels_in_any_order_of_memory(strided: bool) -> None:
    problem = draw(SITES["3x5"])
    labels = place(problem.labels).t().contiguous().t()
    if strided:
        labels = place(problem.labels).repeat_interleave(2, dim=1)[:, ::2]
    assert not labels.is_contiguous()
    check_tensors(problem, place_data(problem), labels, labels[:, :, None])


@pytest.mark.parametrize("n_rows", [14, 15, 16])
def test_as_many_rows_as_a_code_holds(n_rows: int) -> None:
    star = Graph(n_rows + 1, [[0, j] if j % 2 else [j, 0] for j in range(1, n_rows + 1)])
    problem = draw(Case(star, 2, n_pairwise=1, void=0.2))
    assert len(slot_rows(place_data(problem), 1).kinds) == n_rows
    assert binary_sites.is_binary(place_data(problem), place(problem.tables), 1) == (n_rows < 16)
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("n_programs", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_more_programs_than_the_last_one_reads_at_a_time(n_programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, value in {"LANES": 4, "WARPS": 1, "ROUND": 2, "resident": lambda *_: n_programs}.items():
        monkeypatch.setattr(binary_sites, constant, value)
    problem = draw(replace(SITES["3x5"], n_images=11))
    check_same(evaluate(problem), expected(problem))


def test_counters_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_margins, "COUNTERS", 2)
    monkeypatch.setattr(binary_margins, "_counters", {})
    problem = draw(SITES["3x5"])
    for _ in range(5):
        check_same(evaluate(problem), expected(problem))


@pytest.mark.slow
def test_products_of_many_images_stay_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all labels are equally likely, each of the steps between two logarithms doubles a product, four times."""
    for constant, value in {"LANES": 16, "WARPS": 1, "resident": lambda *_: 1}.items():
        monkeypatch.setattr(binary_sites, constant, value)
    problem = draw(Case(Grid(4, 4), 2, n_pairwise=1, n_images=160, dtype=np.float32, scale=0.0))
    value, *_ = evaluate(problem)
    assert value == pytest.approx(problem.importance[0, 0] * problem.labels.size * np.log(2), rel=1e-6)


def test_tied_directions_share_their_tables() -> None:
    problem = draw(SITES["3x5"])
    tied = problem.data._replace(group=np.zeros_like(problem.data.group))
    problem = replace(problem, data=tied, tables=problem.tables[:1])
    check_same(evaluate(problem), expected(problem))


def test_void_is_nothing() -> None:
    for part in evaluate(draw(replace(SITES["3x5"], void=1.0))):
        np.testing.assert_array_equal(part, 0)


@pytest.mark.parametrize("name", ["3x5", "samples, five labels"])
def test_extreme_scores_stay_finite(name: str) -> None:
    problem = draw(replace(SITES[name], scale=1e4))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["3x5", "eight", "samples"])
def test_single_precision(name: str) -> None:
    problem = draw(replace(SITES[name], dtype=np.float32))
    for found, right in zip(evaluate(problem), expected(problem), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5 * np.abs(right).max())
