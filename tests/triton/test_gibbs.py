"""Gibbs sampling in Triton draws the same labels as the reference."""

from __future__ import annotations

import numpy as np
import pytest
from tests.triton.odd_grids import FORMS, GRAPHS, Array, odd_graph, odd_grid
from tests.triton.placing import DEVICE, place, place_model

from locpmap.kernels.model import CONDITIONAL, NOTHING, VOTES
from locpmap.kernels.reference.gibbs import gibbs as reference
from locpmap.kernels.spec import Chain
from locpmap.kernels.triton.climb.gibbs import gibbs
from locpmap.potentials import Potentials

KEY = (0x9ABCDEF0, 0x12345678)


def run_both(potentials: Potentials, adds: int, temperature: float = 1.0, n_classes: int | None = None) -> list[Array]:
    """Return labels and totals of Triton and of the reference after a sweep over the first colour classes."""
    model, placed = potentials.model, place_model(potentials)
    n_images, n_sites, n_labels = model.unary.shape
    labels = np.random.default_rng(1).integers(n_labels, size=(n_images, n_sites))
    totals = np.full(model.unary.shape, 0.25)
    bounds = model.class_ptr if n_classes is None else model.class_ptr[: n_classes + 1]
    mine, sums = place(labels), place(totals)
    chain = Chain(mine, KEY, 5, sums, adds, start_temperature=temperature, sweeps=2)
    reference(model, labels, totals, adds, temperature, *KEY, 3, 5, 0, n_images, 0, int(bounds[-1]))
    gibbs(placed._replace(class_ptr=bounds), chain, 1)
    return [mine.cpu().numpy(), labels, sums.cpu().numpy(), totals]


def compare(results: list[Array]) -> None:
    mine, labels, sums, totals = results
    np.testing.assert_array_equal(mine, labels)
    np.testing.assert_allclose(sums, totals, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5])
def test_labels_and_totals_match_the_reference(n_labels: int, form: str) -> None:
    turn = n_labels + FORMS.index(form)
    compare(run_both(odd_grid((5, 7), n_labels, form), (VOTES, CONDITIONAL)[turn % 2], (1.0, 0.3, 2.5)[turn % 3]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)], ids=str)
def test_images_of_one_row_or_column(shape: tuple[int, int], form: str) -> None:
    compare(run_both(odd_grid(shape, 2, form), CONDITIONAL))


@pytest.mark.parametrize(("structure", "form"), GRAPHS)
def test_graphs_of_uneven_degree(structure: str, form: str) -> None:
    compare(run_both(odd_graph(structure, 3, form), CONDITIONAL))


def test_colour_class_larger_than_one_program() -> None:
    compare(run_both(odd_grid((13, 11), 9, "weights"), CONDITIONAL))


@pytest.mark.parametrize("adds", [NOTHING, VOTES, CONDITIONAL])
def test_site_without_an_allowed_label_keeps_its_label(adds: int) -> None:
    """No label is allowed next to label 2, so both colour classes keep their labels."""
    table = np.zeros((3, 3))
    table[2] = table[:, 2] = -np.inf
    potentials = Potentials.grid(np.zeros((1, 2, 2, 3)), table)
    labels, totals = place(np.full((1, 4), 2)), place(np.zeros((1, 4, 3)))
    gibbs(place_model(potentials), Chain(labels, KEY, 0, totals, adds), 1)
    np.testing.assert_array_equal(labels.cpu().numpy(), 2)
    expected = np.array([0.0, 0.0, 0.0 if adds == NOTHING else 1.0])
    np.testing.assert_array_equal(totals.cpu().numpy(), np.broadcast_to(expected, (1, 4, 3)))


def test_chain_without_totals() -> None:
    """Annealing reaches temperatures that round to 0 in single precision; labels may have any integer type."""
    potentials = odd_grid((5, 7), 3, "weights", np.float32)
    labels = np.zeros((2, 35), np.int16)
    chain = Chain(place(labels), KEY, 0, start_temperature=1e-50, sweeps=6)
    reference(potentials.model, labels, np.zeros((0, 0, 0)), NOTHING, 1e-50, *KEY, 7, 0, 0, 2, 0, 35)
    gibbs(place_model(potentials), chain, 1)
    np.testing.assert_array_equal(chain.labels.cpu().numpy(), labels)


@pytest.mark.parametrize(("adds", "form"), [(VOTES, "weights"), (CONDITIONAL, "hard tables")])
def test_many_sweeps_in_one_launch_equal_single_sweeps(adds: int, form: str) -> None:
    """Sweeps 4 to 10 with decreasing temperature; sweeps 5 and 8 are counted and their labels stored."""
    potentials = odd_grid((5, 7), 3, form)
    labels, totals = np.zeros((2, 35), np.int64), np.zeros((2, 35, 3))
    mine, sums = place(labels), place(totals)
    chain = Chain(mine, KEY, 5, sums, adds, start_temperature=4.0, cooling=0.8, first_counted=2, thin=3, sweeps=3)
    kept = gibbs(place_model(potentials), chain, 7, keep=True)
    assert chain.sweeps == 10
    stages = []
    for number in range(4, 11):
        counts = number in (5, 8)
        how = (adds if counts else NOTHING, 4.0 * 0.8 ** (number - 1), *KEY, number, 5, 0, 2, 0, 35)
        reference(potentials.model, labels, totals, *how)
        stages += [labels.copy()] if counts else []
    compare([mine.cpu().numpy(), labels, sums.cpu().numpy(), totals])
    np.testing.assert_array_equal(kept.cpu().numpy(), stages)


def test_programs_synchronise_between_colours() -> None:
    """The sites need more programs than a GPU can hold; every site uses its neighbours' latest labels."""
    rng = np.random.default_rng(4)
    side = 300 if DEVICE == "cuda" else 30
    potentials = Potentials.grid(rng.normal(size=(3, side, side, 2)), 0.8)
    labels, totals = np.zeros((3, side * side), np.int64), np.zeros((3, side * side, 2))
    mine, sums = place(labels), place(totals)
    n_sweeps = 20 if DEVICE == "cuda" else 3
    gibbs(place_model(potentials), Chain(mine, KEY, 5, sums, VOTES), n_sweeps)
    for number in range(1, n_sweeps + 1):
        reference(potentials.model, labels, totals, VOTES, 1.0, *KEY, number, 5, 0, 3, 0, side * side)
    compare([mine.cpu().numpy(), labels, sums.cpu().numpy(), totals])


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_matches_the_reference(form: str) -> None:
    """Compare probabilities after one sweep; a draw may differ where a uniform is within rounding of a threshold."""
    potentials = odd_grid((5, 7), 3, form, np.float32)
    mine, labels, sums, totals = run_both(potentials, CONDITIONAL, n_classes=1)
    assert (mine != labels).mean() < 0.02
    np.testing.assert_allclose(sums, totals, rtol=0, atol=5e-6)
