"""Mutants: deliberate bugs that the checks of the test suite must detect.

Mutants of the noise are in test_noise and test_theorem, next to the checks that detect them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import Floats, grid_edges, random_grid
from tests.support.climbs import check_ascent, check_locally_optimal, flat_samples, perturbed_unaries
from tests.support.graph_checks import check_independent, check_window
from tests.support.noise import PlainNoise
from tests.support.score_checks import check_scores
from tests.support.tiles import check_tile, halo_is_sufficient

from locpmap import potentials
from locpmap.graphs import Grid
from locpmap.inference import infer
from locpmap.kernels.reference import climb_sites, scores
from locpmap.potentials import Potentials
from locpmap.result import Status

H, W, L = 3, 5, 2
MODEL = random_grid(H, W, L, "potts", coupling=1.5, seed=3)
TABLES = (MODEL.horizontal, MODEL.vertical)


def build() -> Potentials:
    """Build the potentials anew, so that they use the patched functions."""
    return Potentials.grid(MODEL.unary, TABLES)


def check_model_scores() -> None:
    flat = MODEL.flatten()
    check_scores(build(), flat.unary[None], grid_edges(H, W), flat.tables[None])


def check_climbs(backend: str, correct: Potentials, pot: Potentials) -> None:
    """Check that samples drawn on ``pot`` are local maxima of the correct model."""
    samples = flat_samples(pot, infer(pot, PlainNoise(12, keep_samples=True), backend=backend))
    check_locally_optimal(correct, perturbed_unaries(correct, "plain", 12), samples)


def check_climbs_ascend() -> None:
    pot = build()
    for n, unary in enumerate(perturbed_unaries(pot, "plain", 8)[:, 0]):
        check_ascent(pot, unary, np.random.default_rng(n).integers(L, size=H * W), "reference")


CORRECT = build()


def test_checks_pass_without_mutants() -> None:
    check_model_scores()
    check_climbs("reference", CORRECT, build())
    check_climbs("numba", CORRECT, build())
    check_climbs_ascend()


# a pairwise term counted twice


def twice(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """Return local scores that count the pairwise part twice."""

    def mutant(model: Any, labels: Any, image: int | None = None, unary: Any = None) -> Floats:
        alone = unary if unary is not None else model.unary if image is None else model.unary[image]
        return 2 * function(model, labels, image, unary) - alone

    return mutant


def test_pairwise_term_counted_twice_in_local_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(potentials, "local_scores", twice(scores.local_scores))
    with pytest.raises(AssertionError):
        check_model_scores()


def test_pairwise_term_counted_twice_in_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    pair_scores = scores.pair_scores
    monkeypatch.setattr(scores, "pair_scores", lambda *arguments: 2 * pair_scores(*arguments))
    with pytest.raises(AssertionError):
        check_model_scores()


def test_pairwise_term_counted_twice_in_a_climb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb_sites, "local_scores", twice(scores.local_scores))
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        check_climbs("reference", CORRECT, build())


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_one_edge_counted_twice(backend: str) -> None:
    horizontal = MODEL.horizontal.copy()
    horizontal[1, 2] *= 2
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        check_climbs(backend, CORRECT, Potentials.grid(MODEL.unary, (horizontal, MODEL.vertical)))


def test_edges_used_at_one_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant ignores the upper and left neighbours of a site."""

    def one_end(model: Any, labels: Any, image: int, unary: Any) -> Floats:
        local = np.array(unary, np.float64)
        every = np.arange(len(model.edges))
        first, second = model.edges.T
        np.add.at(local, first, scores.edge_tables(model, image, every)[every, :, labels[second]])
        return local

    monkeypatch.setattr(climb_sites, "local_scores", one_end)
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        check_climbs("reference", CORRECT, build())


# a colour class with neighbours in it


@pytest.mark.parametrize(
    "mutant",
    [lambda r, c: 0 * (r + c), lambda r, c: r % 2 + 0 * c, lambda r, c: r // 2 % 2 + 0 * c],
    ids=["one class", "classes of rows", "classes of double rows"],
)
def test_colour_class_with_neighbours_in_it(mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def colours(grid: Grid) -> Any:
        return mutant(*grid.global_coordinates()).astype(np.int32).ravel()

    monkeypatch.setattr(Grid, "colours", colours)
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(H, W).edges(), Grid(H, W).colours())
    with pytest.raises(AssertionError, match="the score fell"):
        check_climbs_ascend()


def test_one_site_in_the_wrong_class(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Grid.colours

    def colours(grid: Grid) -> Any:
        wrong = original(grid)
        wrong[7] = 1 - wrong[7]
        return wrong

    monkeypatch.setattr(Grid, "colours", colours)
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(H, W).edges(), Grid(H, W).colours())


def test_simultaneous_updates_of_neighbours_do_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two repelling sites in one class change their labels together in every sweep; the status reports this."""
    monkeypatch.setattr(Grid, "colours", lambda grid: np.zeros(grid.n_sites, np.int32))
    pot = Potentials.grid(np.zeros((1, 2, 2)), -5.0)
    decoder = PlainNoise(4, start=np.zeros((1, 2), int), temperature=1e-3)
    assert infer(pot, decoder, backend="reference").status is Status.CLIMBS_CUT


# a halo that is too small, and tiles with local coordinates


@pytest.mark.parametrize("n_labels", [2, 4])
def test_halo_too_small(n_labels: int) -> None:
    with pytest.raises(AssertionError):
        check_tile(n_labels, "weight", sweeps=1, halo=1)
    assert not halo_is_sufficient(n_labels, sweeps=4, halo=7, vertical=False)


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
    edges = Grid.edges
    monkeypatch.setattr(Grid, "edges", lambda grid: edges(Grid(grid.width, grid.height)))
    with pytest.raises(AssertionError):
        check_model_scores()
    with pytest.raises(AssertionError, match="joins two sites of one colour"):
        check_independent(Grid(3, 4).edges(), Grid(3, 4).colours())
    with pytest.raises(AssertionError):
        check_climbs("numba", CORRECT, build())


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
    swapped = (square.vertical.swapaxes(0, 1), square.horizontal.swapaxes(0, 1))
    flat = square.flatten()
    with pytest.raises(AssertionError):
        check_scores(Potentials.grid(square.unary, swapped), flat.unary[None], flat.edges, flat.tables[None])
    correct = Potentials.grid(square.unary, (square.horizontal, square.vertical))
    with pytest.raises(AssertionError, match="raises the perturbed score"):
        check_climbs("numba", correct, Potentials.grid(square.unary, swapped))


def test_tables_with_their_two_ends_swapped() -> None:
    model = random_grid(H, W, L, "random", seed=5)
    swapped = Potentials.grid(model.unary, (model.horizontal.swapaxes(-1, -2), model.vertical))
    flat = model.flatten()
    with pytest.raises(AssertionError):
        check_scores(swapped, flat.unary[None], flat.edges, flat.tables[None])
