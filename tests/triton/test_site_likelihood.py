"""Likelihoods of sites in Triton match the reference's values and gradients, on odd shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.likelihoods import (
    FORMED,
    FORMS,
    SITES,
    Case,
    Problem,
    check_forbidden,
    check_same,
    compare_forms,
    draw,
    forms,
)
from tests.triton.placing import DEVICE, place

from locpmap.graphs import Grid
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.likelihood import Losses, Part
from locpmap.kernels.triton.backend import TritonKernels
from locpmap.kernels.triton.likelihood import site_likelihood as sites

every_case = pytest.mark.parametrize("case", SITES.values(), ids=SITES.keys())


def kernels() -> TritonKernels:
    return TritonKernels(DEVICE)


def evaluate(problem: Problem) -> tuple[Any, ...]:
    """Return the value and gradient from Triton."""
    return problem.evaluate(kernels(), problem.weights, problem.tables, place)


def expected(problem: Problem) -> tuple[Any, ...]:
    return problem.evaluate("reference", problem.weights, problem.tables)


@every_case
def test_value_and_gradient_match_the_reference(case: Case) -> None:
    problem = draw(case)
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["sites", "one sample"])
def test_all_forms_of_pairwise_scores(name: str, form: str) -> None:
    problem = draw(FORMED[name])
    compare_forms(problem, forms(problem)[form], kernels(), place)


@pytest.mark.parametrize("name", ["3x5", "samples", "graph"])
def test_only_the_given_part_is_written(name: str) -> None:
    problem = draw(replace(SITES[name], n_images=3))
    scores = problem.scores(problem.weights, problem.tables)
    part = Part(1, 3, 2, problem.n_windows - 1)
    shape = (*problem.labels.shape, problem.samples.shape[2], scores.unary.shape[2])
    given = (problem.labels, problem.samples, problem.importance)
    mine, expected_losses = ((np.full(shape[:2], 7.0), np.full(shape, 7.0)) for _ in range(2))
    kernel_of("reference", "site_likelihood")(scores, *given, Losses(*expected_losses, None), part)
    placed = scores._replace(**{k: place(v) for k, v in scores._asdict().items() if not isinstance(v, bool)})
    out = tuple(place(array) for array in mine)
    placed_labels, samples, weights = (place(array) for array in given)
    sites.site_likelihood(placed, placed_labels, samples, weights, Losses(out[0], out[1], None), part)
    check_same(tuple(tensor.cpu().numpy() for tensor in out), expected_losses)


def test_two_equal_samples_give_the_result_of_one() -> None:
    problem = draw(replace(SITES["3x5"], n_images=3, weighted=True))
    check_same(evaluate(replace(problem, samples=np.repeat(problem.samples, 2, axis=2))), evaluate(problem))


def test_one_sample_that_differs_from_the_labels() -> None:
    problem = draw(SITES["3x5"])
    samples = np.random.default_rng(1).integers(-1, 2, problem.samples.shape).astype(np.int16)
    problem = replace(problem, samples=samples)
    check_same(evaluate(problem), expected(problem))


def test_tied_directions_share_their_tables() -> None:
    problem = draw(SITES["3x5"])
    problem = replace(problem, group=np.zeros_like(problem.group), tables=problem.tables[:1])
    check_same(evaluate(problem), expected(problem))


def test_more_labels_than_a_warp_has_threads() -> None:
    problem = draw(Case(Grid(3, 3), 40, n_images=1, n_pairwise=1))
    check_same(evaluate(problem), expected(problem))


def test_void_sites_contribute_nothing() -> None:
    for part in evaluate(draw(replace(SITES["3x5"], void=1.0))):
        np.testing.assert_array_equal(part, 0)


@pytest.mark.parametrize("name", ["3x5", "samples, five labels"])
def test_extreme_scores_stay_finite(name: str) -> None:
    problem = draw(replace(SITES[name], scale=1e4))
    check_same(evaluate(problem), expected(problem))


@pytest.mark.parametrize("name", ["3x5", "eight", "samples", "samples, five labels"])
def test_a_forbidden_true_label_has_an_infinite_loss(name: str) -> None:
    check_forbidden(SITES[name], kernels(), place)


@pytest.mark.parametrize("name", ["3x5", "eight", "samples"])
def test_single_precision_matches_the_reference(name: str) -> None:
    problem = draw(replace(SITES[name], dtype=np.float32))
    for found, right in zip(evaluate(problem), expected(problem), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5 * np.abs(right).max())
