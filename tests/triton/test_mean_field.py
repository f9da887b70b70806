"""Mean field in Triton performs the same updates as the reference and visits the same sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.odd_grids import FORMS, GRAPHS, Array, odd_graph, odd_grid, random_beliefs
from tests.triton.placing import place, place_model

from locpmap.kernels.model import CHANGED, UNVISITED
from locpmap.kernels.reference.mean_field import mean_field as reference
from locpmap.kernels.triton.climb.mean_field import mean_field
from locpmap.potentials import Potentials


def compare(potentials: Potentials, beliefs: Array, dirty: Array, tolerance: float, within: float) -> None:
    """Perform one sweep in both, in place, and compare beliefs and marks."""
    mine, marks = place(beliefs), place(dirty)
    mean_field(place_model(potentials), mine, marks, tolerance)
    reference(potentials.model, beliefs, dirty, tolerance, 0, len(dirty), 0, dirty.shape[1])
    np.testing.assert_array_equal(marks.cpu().numpy(), dirty)
    np.testing.assert_allclose(mine.cpu().numpy(), beliefs, rtol=0, atol=within)


def compare_sweep(potentials: Potentials, within: float = 1e-9, dtype: Any = np.float64) -> None:
    """Compare a first sweep over all sites."""
    beliefs = random_beliefs(potentials, dtype)
    dirty = np.full(beliefs.shape[:2], UNVISITED, np.uint8)
    compare(potentials, beliefs, dirty, 1e-3, within)


def tolerance_of(form: str) -> float:
    """Return the tolerance; forbidden pairs add scores of -1e9, which leave seven decimals for the rest."""
    return 1e-6 if form == "hard tables" else 1e-9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5])
def test_sweep_matches_the_reference(n_labels: int, form: str) -> None:
    compare_sweep(odd_grid((5, 7), n_labels, form), tolerance_of(form))


@pytest.mark.parametrize("form", ["weights", "hard tables"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)], ids=str)
def test_images_of_one_row_or_column(shape: tuple[int, int], form: str) -> None:
    compare_sweep(odd_grid(shape, 2, form), tolerance_of(form))


@pytest.mark.parametrize(("structure", "form"), GRAPHS)
def test_graphs_of_uneven_degree(structure: str, form: str) -> None:
    compare_sweep(odd_graph(structure, 3, form))


def test_colour_class_larger_than_one_program() -> None:
    compare_sweep(odd_grid((13, 11), 9, "weights"))


@pytest.mark.parametrize("form", ["weights", "factored"])
def test_only_marked_sites_are_updated(form: str) -> None:
    potentials = odd_grid((3, 5), 3, form)
    beliefs, dirty = random_beliefs(potentials), np.zeros((2, 15), np.uint8)
    dirty[0, [2, 3]], dirty[1, 7] = CHANGED, UNVISITED
    sweeps = 0
    while dirty.any():
        compare(potentials, beliefs, dirty, 5e-2, 1e-9)
        sweeps += 1
    assert sweeps > 2


@pytest.mark.parametrize("form", ["weights", "factored"])
def test_many_sweeps_in_one_launch_equal_single_sweeps(form: str) -> None:
    potentials = odd_grid((5, 7), 3, form)
    model, whole = place_model(potentials), (0, 2, 0, 35)
    beliefs, dirty = random_beliefs(potentials), np.full((2, 35), UNVISITED, np.uint8)
    mine, marks = place(beliefs), place(dirty)
    assert int(mean_field(model, mine, marks, 1e-2, n_sweeps=2)) == 2
    for _ in range(2):
        reference(potentials.model, beliefs, dirty, 1e-2, *whole)
    assert dirty.any()
    np.testing.assert_array_equal(marks.cpu().numpy(), dirty)
    sweeps = 0
    while dirty.any():
        reference(potentials.model, beliefs, dirty, 1e-2, *whole)
        sweeps += 1
    assert int(mean_field(model, mine, marks, 1e-2, n_sweeps=50)) == sweeps
    np.testing.assert_array_equal(marks.cpu().numpy(), dirty)
    np.testing.assert_allclose(mine.cpu().numpy(), beliefs, rtol=0, atol=1e-9)
    assert int(mean_field(model, mine, marks, 1e-2, n_sweeps=50)) == 0


def test_steps_within_the_tolerance_are_stored_on_first_visits_only() -> None:
    potentials = odd_grid((3, 5), 3, "weights")
    beliefs, dirty = random_beliefs(potentials), np.full((2, 15), CHANGED, np.uint8)
    compare(potentials, beliefs, dirty, 0.2, 1e-9)
    dirty[:], before = CHANGED, beliefs.copy()
    dirty[1, 7] = UNVISITED
    compare(potentials, beliefs, dirty, 2.0, 1e-9)
    assert np.argwhere((beliefs != before).any(axis=2)).tolist() == [[1, 7]]


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_matches_the_reference(form: str) -> None:
    """Beliefs of Potts models have the unaries' dtype, others are in double precision, as in the decoder."""
    potentials = odd_grid((5, 7), 3, form, np.float32)
    compare_sweep(potentials, 5e-6, np.float32 if potentials.model.potts else np.float64)
