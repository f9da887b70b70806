"""Likelihoods of blocks in Triton: the reference's values and slopes, on odd shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.test_likelihood_kernels import BLOCKS, Case, Problem, check_same, draw
from tests.triton.placing import place

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton import binary_chains, binary_margins, linear_scores
from locpmap.kernels.triton.block_likelihood import block_likelihood

every_case = pytest.mark.parametrize("case", BLOCKS.values(), ids=BLOCKS.keys())


def place_data(problem: Problem) -> Observations:
    return Observations(*(place(array) for array in problem.data))


def evaluate(problem: Problem, images: Any = None, window: Any = None) -> tuple[Any, ...]:
    """Value and slopes in Triton, added to nothing."""
    parts = (*(images or (0, len(problem.labels))), *(window or (0, problem.n_windows)))
    arrays = (problem.labels, problem.importance, problem.weights, problem.tables)
    sums = (np.zeros(1), np.zeros_like(problem.weights), np.zeros_like(problem.tables))
    out = tuple(place(array) for array in sums)
    block_likelihood(place_data(problem), problem.plan, *(place(array) for array in arrays), *out, *parts)
    value, slope, table_slope = (tensor.cpu().numpy() for tensor in out)
    return float(value[0]), slope, table_slope


def expected(problem: Problem, *part: Any) -> tuple[Any, ...]:
    return problem.evaluate("reference", problem.weights, problem.tables, *part)


@every_case
def test_value_and_slopes(case: Case) -> None:
    problem = draw(replace(case, n_images=2 if case.weighted else 1))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_part_of_the_images_and_blocks(name: str) -> None:
    problem = draw(replace(BLOCKS[name], n_images=3))
    part = ((1, 2), (1, problem.n_windows - 1))
    check_same(evaluate(problem, *part), expected(problem, *part))


def test_no_images_or_blocks() -> None:
    problem = draw(BLOCKS["rows"])
    for part in (((1, 1), (0, 3)), ((0, 2), (2, 2))):
        check_same(evaluate(problem, *part), expected(problem, *part))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_a_program_takes_several_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_scores, "MAX_PROGRAMS", 2)
    problem = draw(replace(BLOCKS[name], n_images=3, n_labels=2))
    check_same(evaluate(problem), expected(problem))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("both, two labels", "eight")]


@pytest.mark.parametrize("name", ["nx1", "rows", *SLOW])
def test_chains_of_two_labels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs go from tile to tile, add up before they are done, and stop within a group of images."""
    for constant, value in {"LANES": 4, "WARPS": 1, "SITES_PER_SUM": 6}.items():
        monkeypatch.setattr(binary_chains, constant, value)
    problem = draw(replace(BLOCKS[name], n_images=7, n_labels=2))
    given = (place_data(problem), problem.plan, place(problem.tables), 0, problem.n_windows)
    assert binary_chains.chains_of(*given)
    check_same(evaluate(problem), expected(problem))


def test_more_programs_than_the_last_one_reads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, value in {"LANES": 2, "WARPS": 1, "ROUND": 2, "resident": lambda *_: 5}.items():
        monkeypatch.setattr(binary_chains, constant, value)
    problem = draw(replace(BLOCKS["rows"], n_images=7))
    check_same(evaluate(problem), expected(problem))


def test_counters_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_margins, "COUNTERS", 2)
    monkeypatch.setattr(binary_margins, "_counters", {})
    problem = draw(BLOCKS["rows"])
    for _ in range(5):
        check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_void_is_nothing(name: str) -> None:
    for part in evaluate(draw(replace(BLOCKS[name], void=1.0))):
        np.testing.assert_array_equal(part, 0)


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_extreme_scores_stay_finite(name: str) -> None:
    problem = draw(replace(BLOCKS[name], scale=1e4, n_images=1, n_labels=2))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_single_precision(name: str) -> None:
    problem = draw(replace(BLOCKS[name], dtype=np.float32, n_images=1, n_labels=2))
    for found, right in zip(evaluate(problem), expected(problem), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5 * np.abs(right).max())
