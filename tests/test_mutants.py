"""Planted bugs: each is made on purpose and must be caught by a check that the suite uses.

Wrong noise is planted in test_noise and test_theorem, beside the checks that see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import Floats, grid_edges, random_grid
from tests.support.noise import PlainNoise
from tests.test_graphs import check_independent, check_window
from tests.test_invariants import check_tile, domino
from tests.test_locpmap import check_ascent, check_locally_optimal, perturbed_unaries, sampled
from tests.test_potentials import check_scores

from locpmap import potentials
from locpmap.graphs import Grid
from locpmap.inference import infer
from locpmap.kernels.reference import climb_sites, scores
from locpmap.potentials import Potentials
from locpmap.result import Status

H, W, L = 3, 5, 2
MODEL = random_grid(H, W, L, "potts", coupling=1.5, seed=3)
TABLES = (MODEL.horizontal, MODEL.vertical)


def make() -> Potentials:
    """Potentials built anew, so that what is planted takes part in it."""
    return Potentials.grid(MODEL.unary, TABLES)


def verify_scores() -> None:
    flat = MODEL.flatten()
    check_scores(make(), flat.unary[None], grid_edges(H, W), flat.tables[None])


def verify_climbs(backend: str, truth: Potentials, pot: Potentials) -> None:
    """Samples drawn on ``pot`` are local maxima of the true model."""
    samples = sampled(pot, infer(pot, PlainNoise(12, keep_samples=True), backend=backend))
    check_locally_optimal(truth, perturbed_unaries(truth, "plain", 12), samples)


def verify_ascent() -> None:
    pot = make()
    for n, unary in enumerate(perturbed_unaries(pot, "plain", 8)[:, 0]):
        check_ascent(pot, unary, np.random.default_rng(n).integers(L, size=H * W), "reference")


TRUTH = make()


def test_without_mutants_everything_passes() -> None:
    verify_scores()
    verify_climbs("reference", TRUTH, make())
    verify_climbs("numba", TRUTH, make())
    verify_ascent()


# a pairwise term counted twice


def twice(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """The pairwise part of local scores, once more."""

    def mutant(model: Any, labels: Any, image: int | None = None, unary: Any = None) -> Floats:
        alone = unary if unary is not None else model.unary if image is None else model.unary[image]
        return 2 * function(model, labels, image, unary) - alone

    return mutant


def test_a_pairwise_term_counted_twice_in_local_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(potentials, "local_scores", twice(scores.local_scores))
    with pytest.raises(AssertionError):
        verify_scores()


def test_a_pairwise_term_counted_twice_in_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    pair_scores = scores.pair_scores
    monkeypatch.setattr(scores, "pair_scores", lambda *arguments: 2 * pair_scores(*arguments))
    with pytest.raises(AssertionError):
        verify_scores()


def test_a_pairwise_term_counted_twice_in_a_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb_sites, "local_scores", twice(scores.local_scores))
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        verify_climbs("reference", TRUTH, make())


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_one_edge_counted_twice(backend: str) -> None:
    horizontal = MODEL.horizontal.copy()
    horizontal[1, 2] *= 2
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        verify_climbs(backend, TRUTH, Potentials.grid(MODEL.unary, (horizontal, MODEL.vertical)))


def test_an_edge_seen_from_one_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A climb that forgets the upper and left neighbours of a site."""

    def one_end(model: Any, labels: Any, image: int, unary: Any) -> Floats:
        local = np.array(unary, np.float64)
        every = np.arange(len(model.edges))
        first, second = model.edges.T
        np.add.at(local, first, scores.edge_tables(model, image, every)[every, :, labels[second]])
        return local

    monkeypatch.setattr(climb_sites, "local_scores", one_end)
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        verify_climbs("reference", TRUTH, make())


# a colour class with neighbours in it


@pytest.mark.parametrize(
    "mutant",
    [lambda r, c: 0 * (r + c), lambda r, c: r % 2 + 0 * c, lambda r, c: r // 2 % 2 + 0 * c],
    ids=["one class", "classes of rows", "classes of double rows"],
)
def test_a_colour_class_with_neighbours_in_it(mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def colours(grid: Grid) -> Any:
        return mutant(*grid.global_coordinates()).astype(np.int32).ravel()

    monkeypatch.setattr(Grid, "colours", colours)
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(H, W).edges(), Grid(H, W).colours())
    with pytest.raises(AssertionError, match="the score fell"):
        verify_ascent()


def test_one_site_in_the_wrong_class(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Grid.colours

    def colours(grid: Grid) -> Any:
        wrong = right(grid)
        wrong[7] = 1 - wrong[7]
        return wrong

    monkeypatch.setattr(Grid, "colours", colours)
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(H, W).edges(), Grid(H, W).colours())


def test_neighbours_that_change_at_once_never_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sites that repel, both in one class, change their labels together for ever; the status says so."""
    monkeypatch.setattr(Grid, "colours", lambda grid: np.zeros(grid.n_sites, np.int32))
    pot = Potentials.grid(np.zeros((1, 2, 2)), -5.0)
    decoder = PlainNoise(4, start=np.zeros((1, 2), int), temperature=1e-3)
    assert infer(pot, decoder, backend="reference").status is Status.CLIMBS_CUT


# a halo one short, and tiles with coordinates of their own


@pytest.mark.parametrize("n_labels", [2, 4])
def test_a_halo_one_short(n_labels: int) -> None:
    with pytest.raises(AssertionError):
        check_tile(n_labels, "weight", sweeps=1, halo=1)
    assert not domino(n_labels, sweeps=4, halo=7, vertical=False)


def test_tiles_with_noise_by_local_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "site_ids", lambda grid: np.arange(grid.n_sites, dtype=np.int64))
    with pytest.raises(AssertionError):
        check_window(Grid(3, 4, 4, 2, 2, 9), Grid(7, 9))
    with pytest.raises(AssertionError):
        check_tile(2, "table", sweeps=1, halo=2)


def test_tiles_with_colours_by_local_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    def colours(grid: Grid) -> Any:
        return np.add.outer(np.arange(grid.height), np.arange(grid.width)).ravel().astype(np.int32) % 2

    monkeypatch.setattr(Grid, "colours", colours)
    with pytest.raises(AssertionError):
        check_window(Grid(3, 4, 4, 1, 2, 9), Grid(7, 9))


# width and height swapped


def test_edges_of_a_grid_with_width_and_height_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Grid.edges
    monkeypatch.setattr(Grid, "edges", lambda grid: right(Grid(grid.width, grid.height)))
    with pytest.raises(AssertionError):
        verify_scores()
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(3, 4).edges(), Grid(3, 4).colours())
    with pytest.raises(AssertionError):
        verify_climbs("numba", TRUTH, make())


def test_noise_keyed_with_width_and_height_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def site_ids(grid: Grid) -> Any:
        rows, columns = grid.global_coordinates()
        return (columns * (grid.row + grid.height) + rows).ravel()

    monkeypatch.setattr(Grid, "site_ids", site_ids)
    with pytest.raises(AssertionError):
        check_window(Grid(3, 4, 4, 2, 2, 9), Grid(7, 9))
    with pytest.raises(AssertionError):
        check_tile(2, "table", sweeps=1, halo=2)


def test_weights_of_a_square_with_width_and_height_swapped() -> None:
    """On a square, transposed weights have the right shapes."""
    square = random_grid(4, 4, L, "potts", coupling=1.5, seed=4)
    turned = (square.vertical.swapaxes(0, 1), square.horizontal.swapaxes(0, 1))
    flat = square.flatten()
    with pytest.raises(AssertionError):
        check_scores(Potentials.grid(square.unary, turned), flat.unary[None], flat.edges, flat.tables[None])
    truth = Potentials.grid(square.unary, (square.horizontal, square.vertical))
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        verify_climbs("numba", truth, Potentials.grid(square.unary, turned))


def test_tables_with_their_two_ends_swapped() -> None:
    model = random_grid(H, W, L, "random", seed=5)
    turned = Potentials.grid(model.unary, (model.horizontal.swapaxes(-1, -2), model.vertical))
    flat = model.flatten()
    with pytest.raises(AssertionError):
        check_scores(turned, flat.unary[None], flat.edges, flat.tables[None])
