"""Ascent by rows and columns in Triton matches the reference's ascent by blocks, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.grid_cases import odd_model
from tests.triton.placing import DEVICE, place
from tests.triton.together import run_together

from locpmap.graphs.blocks import plan_blocks
from locpmap.graphs.grid import Grid
from locpmap.kernels import cache
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.model import GridWindow
from locpmap.kernels.perturbation import DROP, GIVEN, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference.climb_blocks import climb_blocks as reference
from locpmap.kernels.spec import Blocks, Climb, Span
from locpmap.kernels.triton.climb import climb_lines as lines
from locpmap.kernels.triton.climb.climb_lines import climb_lines
from locpmap.potentials import Potentials

KEY = (0xFEDCBA98, 0x01234567)
SHAPES = [(1, 1), (1, 7), (5, 1), (3, 4), (4, 9)]
FORMS = ["weight", "weights"]
LINES = ("columns", "rows", "rows+columns")


@pytest.fixture(autouse=True)
def small_batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small batches outside slow tests: large ones, mostly beyond these short lines, slow down the interpreter."""
    if DEVICE == "cpu" and not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(lines, "FEW", (lines.FEW[0], 2))
        monkeypatch.setattr(lines, "MANY", (lines.MANY[0], 2))
        monkeypatch.setattr(lines, "BACK", 2)


def no_plan() -> BlockPlan:
    raise AssertionError("lines need no plan")


def climb(
    potentials: Potentials,
    blocks: str,
    perturbation: Perturbation,
    start: int,
    given: Any,
    max_sweeps: int,
    n_samples: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Climb on all images; the noise numbers samples from 2 and images from 4."""
    grid = potentials.structure
    assert isinstance(grid, Grid)
    right, down = (place(weight) for weight in potentials.view.direction_weights(potentials.unary.dtype))
    window = GridWindow(grid.height, grid.width, grid.row, grid.column, grid.whole_width, potentials.n_sites)
    how = Climb(perturbation, start, place(given), max_sweeps, 4, blocks=Blocks(blocks, no_plan))
    span = Span(0, potentials.n_images, 2, n_samples)
    return climb_lines(place(potentials.unary), right, down, window, how, span)


def check(
    potentials: Potentials, blocks: str, *, scheme: int = PLAIN, start: int = RANDOM, max_sweeps: int = 50, **rest: Any
) -> None:
    """Compare labels and sweeps with the reference."""
    model = potentials.model
    n, n_sites, n_labels = model.unary.shape
    plan = plan_blocks(blocks, potentials.structure, n_labels)
    perturbation = Perturbation(scheme, 0.7, *KEY)
    given = np.random.default_rng(1).integers(n_labels, size=(n, n_sites))
    labels = np.empty((n, n_sites, rest.get("n_samples", 3)), np.int16)
    sweeps = reference(model, plan, perturbation, start, given, max_sweeps, 4, 0, n, 2, labels)
    found, found_sweeps = climb(potentials, blocks, perturbation, start, given, max_sweeps, labels.shape[2])
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(found_sweeps.cpu().numpy(), sweeps)
    assert found_sweeps.dtype == torch.int32


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "form"), [(s, f) for s in SHAPES for f in (FORMS if s != (4, 9) else FORMS[:1])])
def test_lines_match_the_reference(shape: tuple[int, int], form: str) -> None:
    turn = 3 * SHAPES.index(shape) + FORMS.index(form) + 1
    n_labels, start = (2, 3, 5, 1)[turn % 4], (RANDOM, PERTURBED, GIVEN)[turn // 2 % 3]
    for blocks in LINES:
        check(odd_model(shape, n_labels, form, turn), blocks, start=start)


@pytest.mark.slow
def test_lines_are_revisited_when_crossing_lines_change() -> None:
    rng = np.random.default_rng(8)
    weights = tuple(np.abs(2 * rng.normal(size=shape)) for shape in ((8, 8), (7, 9)))
    potentials = Potentials.grid(rng.normal(size=(8, 9, 2)), weights)
    check(potentials, "rows+columns", n_samples=64)


def strongly_coupled_grid(shape: tuple[int, int], n_labels: int, strength: float, seed: int) -> Potentials:
    """Return a grid whose weights are about as large as its unaries, so that lines improve several times."""
    rng, (height, width) = np.random.default_rng(seed), shape
    weights = [strength * rng.normal(size=(1, *of)) for of in ((height, width - 1), (height - 1, width))]
    scores = rng.normal(size=(1, *shape, n_labels)) / 2
    return Potentials.grid(scores, tuple(map(np.abs, weights)))


# A line is visited again if it, an adjacent line or a crossing line changed.  The first model needs each of these.
COUPLED = [((9, 10), 3, 1.0, 277), ((7, 9), 3, 3.0, 11), ((4, 12), 2, 1.5, 15)]
OTHERS = [((3, 70), 3), ((37, 4), 5), ((65, 3), 2), ((1, 33), 3), ((33, 1), 3), ((6, 7), 9), ((40, 50), 4)]
MORE = [pytest.param(*model, 1.5, 1, marks=pytest.mark.slow) for model in OTHERS]


@pytest.mark.parametrize(("shape", "n_labels", "strength", "seed"), [*COUPLED, *MORE])
def test_strongly_coupled_grids_match_the_reference(
    shape: tuple[int, int], n_labels: int, strength: float, seed: int
) -> None:
    check(strongly_coupled_grid(shape, n_labels, strength, seed), "rows+columns", n_samples=5)


@pytest.mark.skipif(DEVICE == "cpu", reason="the interpreter is too slow for 200 sweeps")
def test_many_sweeps_match_the_reference() -> None:
    """Each row copies the row above it, one turn later."""
    n_rows = 300
    unary = np.zeros((1, n_rows, 2, 2))
    unary[:, 0, :, 1] = 1e5
    above = np.broadcast_to(np.arange(n_rows - 1, 0.0, -1)[:, None] * 50, (1, n_rows - 1, 2))
    check(Potentials.grid(unary, (np.ones((1, n_rows, 1)), above)), "rows", max_sweeps=200, n_samples=1)


@pytest.mark.parametrize(("n_labels", "form"), [(9, "weights"), (32, "weights")])
def test_many_labels_match_the_reference(n_labels: int, form: str) -> None:
    check(odd_model((3, 5), n_labels, form, 4), "rows+columns")


@pytest.mark.parametrize(("scheme", "start"), [(NONE, RANDOM), (DROP, PERTURBED)])
def test_noise_schemes_match_the_reference(scheme: int, start: int) -> None:
    check(odd_model((2, 3), 2, "weights", 1), "rows+columns", scheme=scheme, start=start)


@pytest.mark.parametrize("start", [pytest.param(RANDOM, marks=pytest.mark.slow), PERTURBED])
def test_more_samples_than_a_program_holds(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "ITEMS", 2)
    check(odd_model((3, 2), 3, "weights", 3), "columns", start=start, n_samples=5)


@pytest.mark.slow
def test_more_samples_than_the_largest_program_holds() -> None:
    check(odd_model((3, 2), 2, "weights", 3), "columns", n_samples=70)


def test_programs_share_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    run_together(monkeypatch, 3, lines)
    check(odd_model((4, 3), 2, "weights", 3), "rows+columns")


@pytest.mark.parametrize("max_sweeps", [1, 2])
def test_max_sweeps_limits_the_climb(max_sweeps: int) -> None:
    check(odd_model((3, 3), 3, "weights", 7), "rows", max_sweeps=max_sweeps)


def test_cached_site_numbers_are_released_with_the_weights() -> None:
    """Site numbers are cached with the weights and released with them."""

    def entries() -> list[Any]:
        return [key for key in cache._entries if isinstance(key[0], tuple) and key[0][0] == "sites"]

    check(odd_model((2, 3), 2, "weight", 1), "rows", n_samples=1)
    assert not entries()
    unary = place(np.zeros((1, 6, 2)))
    right, down = (place(np.ones((1, *shape))) for shape in ((2, 2), (1, 3)))
    how = Climb(Perturbation(PLAIN, 1.0, *KEY), RANDOM, None, 5, blocks=Blocks("rows", no_plan))
    given = (GridWindow(2, 3, 0, 0, 3, 6), how, Span(0, 1, 0, 1))
    for _ in range(2):
        climb_lines(unary, right, down, *given)
        assert len(entries()) == 1
    del right, down
    assert not entries()


TIES = list(zip((0.0, 1.0, 2.0), LINES, strict=True))
OTHER_TIES = [(weight, blocks) for weight, _ in TIES for blocks in LINES if (weight, blocks) not in TIES]


@pytest.mark.parametrize(
    ("weight", "blocks"), [*TIES, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHER_TIES)]
)
def test_ties_go_to_the_smallest_labels(weight: float, blocks: str) -> None:
    unary = np.random.default_rng(5).integers(0, 2, size=(3, 6, 3)).astype(np.float64)
    for n_samples in (5, 20):  # all labels in one part, and one label per part
        check(Potentials.grid(unary, weight), blocks, scheme=NONE, n_samples=n_samples)


def check_maxima(potentials: Potentials, temperature: float, n_samples: int) -> None:
    """Check that climbs end at labels that the reference does not improve."""
    n_sites, n_labels = potentials.unary.shape[1:]
    plan = plan_blocks("rows+columns", potentials.structure, n_labels)
    perturbation = Perturbation(PLAIN, temperature, *KEY)
    given = np.zeros((1, n_sites), np.int64)
    found, _ = climb(potentials, "rows+columns", perturbation, RANDOM, given, 50, n_samples)
    for s in range(n_samples):
        again = np.empty((1, n_sites, 1), np.int16)
        y = found[:, :, s].cpu().numpy().astype(np.int64)
        assert reference(potentials.model, plan, perturbation, GIVEN, y, 50, 4, 0, 1, 2 + s, again) == 0


@pytest.mark.slow
def test_single_precision_ends_at_line_wise_maxima() -> None:
    """Rounding may lead to another maximum, but not to labels that the reference would improve."""
    rng = np.random.default_rng(2)
    check_maxima(Potentials.grid(rng.normal(size=(7, 11, 3)).astype(np.float32), 0.7), 0.7, 3)


def test_near_ties_end_at_line_wise_maxima() -> None:
    """A line that would gain no more than rounding keeps its labels."""
    unary = np.random.default_rng(10).integers(0, 3, (1, 4, 6, 3)).astype(np.float64)
    check_maxima(Potentials.grid(unary, 1.0), 1e-12, 2)
