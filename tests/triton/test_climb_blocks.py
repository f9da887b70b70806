"""Block-wise ascent in Triton matches the reference: chains, trees and enumerated blocks, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.models import random_unary, structure_edges
from tests.support.grid_cases import odd_model
from tests.triton.placing import DEVICE, place, place_model

from locpmap.graphs.blocks import plan_blocks
from locpmap.kernels.perturbation import DROP, GIVEN, LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference.climb_blocks import climb_blocks as reference
from locpmap.kernels.spec import Blocks, Climb, Span
from locpmap.kernels.triton.block_launches import launches
from locpmap.kernels.triton.climb.climb_blocks import climb_blocks
from locpmap.potentials import Potentials

KEY = (0xFEDCBA98, 0x01234567)
SHAPES = [(1, 1), (1, 7), (5, 1), (3, 4)]
FORMS = ["weight", "negative weight", "either sign", "table", "hard tables"]


def check(
    potentials: Potentials, blocks: Any, *, scheme: int = PLAIN, start: int = RANDOM, max_sweeps: int = 50, **rest: Any
) -> None:
    """Compare labels and sweeps with the reference."""
    model = potentials.model
    n, n_sites, n_labels = model.unary.shape
    lo, hi, first_sample, n_samples = rest.get("lo", 0), rest.get("hi", n), 2, rest.get("n_samples", 3)
    plan = plan_blocks(blocks, potentials.structure, n_labels)
    perturbation = Perturbation(scheme, 0.7, *KEY)
    given = np.random.default_rng(1).integers(n_labels, size=(n, n_sites))
    labels = np.empty((hi - lo, n_sites, n_samples), np.int16)
    part = (max_sweeps, 4, lo, hi, first_sample)
    sweeps = reference(model, plan, perturbation, start, given, *part, labels)
    found = torch.full(labels.shape, 77, dtype=torch.int16, device=DEVICE)
    climb = Climb(perturbation, start, place(given), max_sweeps, 4, blocks=Blocks(blocks, lambda: plan))
    found_sweeps = climb_blocks(place_model(potentials), climb, Span(lo, hi, first_sample, n_samples), found)
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(found_sweeps.cpu().numpy(), sweeps)
    assert found_sweeps.dtype == torch.int32


def on_graph(structure: str, n_sites: int, n_labels: int, seed: int, forbidden: float = 0.0) -> Potentials:
    rng = np.random.default_rng(seed)
    edges = structure_edges(structure, n_sites, rng)
    tables = 2 * rng.normal(size=(len(edges), n_labels, n_labels))
    tables[rng.random(tables.shape) < forbidden] = -np.inf
    return Potentials.graph(random_unary((n_sites,), n_labels, forbidden, rng), edges, tables)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chains_match_the_reference(shape: tuple[int, int], form: str) -> None:
    turn = 3 * SHAPES.index(shape) + FORMS.index(form) + 1
    blocks = ("columns", "rows", "rows+columns")[turn % 3]
    check(odd_model(shape, (2, 3, 5, 1)[turn % 4], form, turn), blocks, start=(RANDOM, PERTURBED, GIVEN)[turn // 2 % 3])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "tile"), [((1, 1), (2, 2)), ((1, 5), (1, 3)), ((2, 3), (2, 1))], ids=str)
def test_tiles_match_the_reference(shape: tuple[int, int], tile: tuple[int, int], form: str) -> None:
    turn = 3 * tile[0] + FORMS.index(form) + 1
    check(odd_model(shape, (2, 3, 1)[turn % 3], form, turn), tile, start=(RANDOM, PERTURBED, GIVEN)[turn // 2 % 3])


@pytest.mark.slow
@pytest.mark.parametrize(("n_labels", "form"), [(5, "hard tables"), (8, "weight"), (4, "either sign")])
def test_tiles_of_many_labellings_match_the_reference(n_labels: int, form: str) -> None:
    """There are more labellings than a program compares together, so most are skipped."""
    check(odd_model((2, 3), n_labels, form, 4), (2, 2))


@pytest.mark.slow
def test_tiles_are_revisited_when_adjacent_tiles_change() -> None:
    rng = np.random.default_rng(8)
    weights = (2 * rng.normal(size=(4, 5)), 2 * rng.normal(size=(3, 6)))
    check(Potentials.grid(rng.normal(size=(4, 6, 2)), weights), (2, 1), n_samples=32)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_trees_and_small_blocks_in_one_plan(n_labels: int) -> None:
    potentials = on_graph("tree", 17, n_labels, seed=n_labels)
    blocks = [list(range(13)), [14, 16]]
    plan = plan_blocks(blocks, potentials.structure, n_labels)
    assert {run.joint for run in launches(place_model(potentials), plan)[1]} == {False, True}
    check(potentials, blocks)


def test_block_of_two_trees_with_forbidden_labels() -> None:
    check(on_graph("chain", 15, 3, seed=4, forbidden=0.2), [[0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12]], n_samples=9)


def test_chain_without_an_allowed_labelling_keeps_its_labels() -> None:
    tables = np.full((4, 2, 2), -np.inf)
    potentials = Potentials.graph(np.zeros((5, 2)), [[0, 1], [1, 2], [2, 3], [3, 4]], tables)
    for blocks in ([[0, 1, 2, 3, 4]], [[0, 1], [2, 3, 4]]):
        check(potentials, blocks)
    right = np.random.default_rng(0).normal(size=(1, 4, 2, 2))
    right[0, 0] = -np.inf  # the sites after this edge could improve
    check(Potentials.grid(np.zeros((1, 5, 2)), [right, np.zeros((0, 5, 2, 2))]), "rows")


@pytest.mark.parametrize(("scheme", "start"), [(NONE, RANDOM), (LOGISTIC, RANDOM), (DROP, PERTURBED)])
@pytest.mark.parametrize("blocks", ["rows", (1, 2)])
def test_noise_schemes_match_the_reference(scheme: int, start: int, blocks: Any) -> None:
    check(odd_model((2, 3), 2, "either sign", 1), blocks, scheme=scheme, start=start)


@pytest.mark.parametrize("blocks", ["columns", (2, 1)])
def test_subset_of_images_with_more_samples_than_a_program_holds(blocks: Any) -> None:
    potentials = odd_model((2, 2), 2, "either sign", 3)
    assert len(potentials.unary) == 3
    check(potentials, blocks, lo=1, hi=2, n_samples=33)


def test_max_sweeps_limits_the_climb() -> None:
    check(odd_model((3, 3), 3, "table", 7), "rows", max_sweeps=1)


def test_eight_connected_grid_matches_the_reference() -> None:
    rng = np.random.default_rng(3)
    potentials = Potentials.grid(rng.normal(size=(2, 3, 2)), 0.6, connectivity=8)
    check(potentials, "rows")
    check(potentials, (2, 2))


@pytest.mark.parametrize("blocks", ["rows+columns", (2, 2)])
def test_single_precision_ends_at_block_wise_maxima(blocks: Any) -> None:
    """Rounding may lead to another maximum, but not to labels that the reference would improve."""
    rng = np.random.default_rng(2)
    potentials = Potentials.grid(rng.normal(size=(2, 3, 3)).astype(np.float32), 0.7)
    model, plan = potentials.model, plan_blocks(blocks, potentials.structure, 3)
    perturbation = Perturbation(PLAIN, 0.7, *KEY)
    found = torch.empty((1, 6, 3), dtype=torch.uint8, device=DEVICE)
    climb = Climb(perturbation, RANDOM, None, 50, blocks=Blocks(blocks, lambda: plan))
    climb_blocks(place_model(potentials), climb, Span(0, 1, 0, 3), found)
    for s in range(3):
        again = np.empty((1, 6, 1), np.int16)
        y = found[:, :, s].cpu().numpy().astype(np.int64)
        sweeps = reference(model, plan, perturbation, GIVEN, y, 50, 0, 0, 1, s, again)
        assert sweeps == 0


def test_runs_separate_adjacent_blocks_and_keep_the_order() -> None:
    potentials = odd_model((5, 7), 2, "weight", 1)
    model = place_model(potentials)
    plan = plan_blocks("rows+columns", potentials.structure, 2)
    placed, runs = launches(model, plan)
    assert [tuple(run) for run in runs] == [(False, *part) for part in ((0, 2), (2, 5), (5, 9), (9, 12))]
    assert launches(model, plan)[0] is placed
