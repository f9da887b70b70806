"""The Potts climb matches the reference: starting labels, labels and sweeps, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.triton.placing import place
from tests.triton.together import run_together

from locpmap.kernels.model import GridWindow
from locpmap.kernels.perturbation import GIVEN, PERTURBED, PLAIN, RANDOM, GridClimb, Perturbation
from locpmap.kernels.reference import climb_potts as reference_potts
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb import climb_potts as triton_potts
from locpmap.kernels.triton.climb.climb_potts import climb_potts

Array = npt.NDArray[Any]
KEY = (12345, 2**32 - 3)
R = 9


@pytest.mark.parametrize(("n_labels", "start"), [(2, RANDOM), (2, PERTURBED), (3, GIVEN), (5, RANDOM)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 7)], ids=str)
def test_climbs_match_the_reference(shape: tuple[int, int], n_labels: int, start: int) -> None:
    check(2, shape, n_labels, start, max_sweeps=(100, 2, 1)[(shape[1] + n_labels) % 3])


@pytest.mark.slow
@pytest.mark.parametrize("n_labels", [21, 130])
def test_many_labels_match_the_reference(n_labels: int) -> None:
    check(1, (1, 2), n_labels, PERTURBED)


@pytest.mark.parametrize("n_labels", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_images_of_several_tiles_and_teams_match_the_reference(n_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_potts, "TILES_EACH", 1)
    check(2, (5, 33), n_labels, RANDOM)


@pytest.mark.parametrize("n_labels", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("max_sweeps", [100, *(pytest.param(few, marks=pytest.mark.slow) for few in (2, 3, 5))])
def test_programs_share_an_image(n_labels: int, max_sweeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team of two programs processes one image after another; a new label spreads from the corners."""
    run_together(monkeypatch, 2, triton_potts)
    monkeypatch.setattr(triton_potts, "TILES_EACH", 1)
    unary = np.zeros((2, 9 * 17, n_labels))
    unary[0, :, 1] = unary[1, 17:, 1] = 2.5  # enough with one of four neighbours, or none of two
    right, down = np.ones((1, 9, 16)), np.ones((1, 8, 17))
    compare(unary, right, down, np.zeros((2, 9 * 17), np.uint8), GIVEN, max_sweeps, temperature=0.05)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_negative_weights_and_forbidden_labels(n_labels: int) -> None:
    check(2, (4, 5), n_labels, RANDOM, forbid=0.3, least=-1.0 if n_labels == 2 else 0.0)


def test_a_tie_keeps_the_starting_label_in_every_tile() -> None:
    """Labels 1 and 2 of the neighbours score the same, as the temperature is below rounding."""
    unary = np.full((1, 200, 3), [0.5, 0.0, 0.0])
    unary[0, 1, 0] = 5.0  # site 1 changes to label 0 at once, so all samples have changed before the second tile
    given = np.full((1, 200), 2, np.uint8)
    given[0, ::4] = 1
    right, down = np.ones((1, 1, 199)), np.ones((1, 0, 200))
    compare(unary, right, down, given, GIVEN, 1, temperature=1e-20)


def check(
    n_images: int,
    shape: tuple[int, int],
    n_labels: int,
    start: int,
    max_sweeps: int = 100,
    forbid: float = 0.0,
    least: float = 0.0,
) -> None:
    """Compare on a random model."""
    rng = np.random.default_rng(n_labels)
    height, width = shape
    n_sites = height * width
    unary = 2 * rng.normal(size=(n_images, n_sites, n_labels))
    unary[..., 1:][rng.random((n_images, n_sites, n_labels - 1)) < forbid] = -np.inf
    right = rng.uniform(least, 1, (n_images, height, width - 1))
    down = rng.uniform(least, 1, (1, height - 1, width))
    given = rng.integers(0, n_labels, (n_images, n_sites)).astype(np.uint8)
    compare(unary, right, down, given, start, max_sweeps)


def compare(
    unary: Array, right: Array, down: Array, given: Array, start: int, max_sweeps: int, temperature: float = 0.5
) -> None:
    """Compare labels and sweeps with the reference, in a window of a larger grid and from sample 8 on."""
    how, window = (temperature, *KEY, 3, 8, start), (3, 2, 2**33, max_sweeps)
    labels = np.zeros((*unary.shape[:2], R), np.uint8 if unary.shape[2] <= 127 else np.int16)
    sweeps = reference_potts.climb_potts(GridClimb(unary, right, down, *how, given, *window), labels)
    model = (place(unary), place(right), place(down))
    grid = GridWindow(right.shape[1], down.shape[2], *window[:3], whole_sites=2**40)
    climb = Climb(Perturbation(PLAIN, temperature, *KEY), start, place(given), max_sweeps, first_image=3)
    found, made = climb_potts(*model, grid, climb, Span(0, len(unary), 8, R))
    assert found.dtype == (torch.uint8 if unary.shape[2] <= 127 else torch.int16)
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(made.cpu().numpy(), sweeps)
