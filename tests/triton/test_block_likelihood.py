"""Likelihoods of blocks in Triton match the reference's values and gradients, on odd shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.likelihoods import BLOCKS, FORMED, FORMS, Case, Problem, check_same, compare_forms, draw, forms
from tests.triton.placing import DEVICE, place

from locpmap.kernels.triton.backend import TritonKernels
from locpmap.kernels.triton.likelihood import block_likelihood

every_case = pytest.mark.parametrize("case", BLOCKS.values(), ids=BLOCKS.keys())


def kernels() -> TritonKernels:
    return TritonKernels(DEVICE)


def evaluate(problem: Problem) -> tuple[Any, ...]:
    """Return the value and gradient from Triton."""
    return problem.evaluate(kernels(), problem.weights, problem.tables, place)


def expected(problem: Problem) -> tuple[Any, ...]:
    return problem.evaluate("reference", problem.weights, problem.tables)


@every_case
def test_value_and_gradient_match_the_reference(case: Case) -> None:
    problem = draw(replace(case, n_images=2 if case.weighted else 1))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["rows and columns", "tiles"])
def test_all_forms_of_pairwise_scores(name: str, form: str) -> None:
    problem = draw(FORMED[name])
    compare_forms(problem, forms(problem)[form], kernels(), place)


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_images_processed_in_several_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_likelihood, "MAX_PAIRS", 1)
    problem = draw(replace(BLOCKS[name], n_images=3))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_void_sites_contribute_nothing(name: str) -> None:
    for part in evaluate(draw(replace(BLOCKS[name], void=1.0))):
        np.testing.assert_array_equal(part, 0)


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_extreme_scores_stay_finite(name: str) -> None:
    problem = draw(replace(BLOCKS[name], scale=1e4))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["rows", "tiles"])
def test_single_precision_matches_the_reference(name: str) -> None:
    problem = draw(replace(BLOCKS[name], dtype=np.float32))
    for found, right in zip(evaluate(problem), expected(problem), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5 * np.abs(right).max())
