"""Error fields match the reference: unaries, labels and sweeps, on windows of odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.triton.placing import place
from tests.triton.together import run_together

import locpmap as lp
from locpmap.graphs import Graph, cluster_hierarchy
from locpmap.inference.api import make_problem
from locpmap.kernels.fields import Fields, draw_moves, quantised
from locpmap.kernels.model import GridWindow
from locpmap.kernels.perturbation import GIVEN, NONE, PERTURBED, PLAIN, RANDOM, GridClimb, Perturbation
from locpmap.kernels.reference import add_fields as reference_fields
from locpmap.kernels.reference import climb_fields as reference_climb
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb import climb_fields as triton_climb
from locpmap.kernels.triton.climb.add_fields import add_fields, terms_of
from locpmap.kernels.triton.climb.climb_fields import climb_fields
from locpmap.kernels.triton.climb.potts_grid import grid_field
from locpmap.kernels.triton.philox import Draw

KEY = (12345, 2**32 - 3)
# height, width, labels, cell, scales, row, column
SHAPES = [
    (5, 7, 5, 4, 2, 0, 0),
    (5, 7, 2, 1, 3, 7, 5),
    (6, 5, 3, 2, 1, 100, 3),
    (1, 9, 4, 8, 2, 3, 11),
    (4, 1, 9, 4, 3, 1, 2),
    (3, 4, 6, 4, 0, 1, 2),
]
FIRST_IMAGE, FIRST_SAMPLE = 3, 7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adds_the_fields_of_the_reference(shape: tuple[int, ...], dtype: Any) -> None:
    height, width, n_labels, _, _, row, column = shape
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(2, height * width, n_labels)).astype(dtype)
    fields = fields_of(rng, shape, 2)
    images, samples = range(FIRST_IMAGE, FIRST_IMAGE + 2), range(FIRST_SAMPLE, FIRST_SAMPLE + 1)
    expected, found = np.empty_like(unary), place(np.empty_like(unary))
    moves = draw_moves(fields, KEY, images, samples, dtype)
    window = (height, width, row, column)
    reference_fields.add_fields(unary, window, fields, moves, KEY, FIRST_IMAGE, FIRST_SAMPLE, expected)
    moves = draw_moves(fields, KEY, images, samples, np.float64)
    grid, draw = GridWindow(*window, column + width, 2**40), Draw(*KEY, FIRST_IMAGE, FIRST_SAMPLE)
    add_fields(place(unary), terms_of(fields, moves, grid, draw, found), found)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.parametrize(("shape", "start"), [*zip(SHAPES, 2 * [RANDOM, PERTURBED, GIVEN], strict=True)])
def test_climbs_match_the_reference(shape: tuple[int, ...], start: int) -> None:
    compare(shape, start, 2.0, 0.6, np.float32)


@pytest.mark.parametrize(("shape", "start"), [*zip(SHAPES, 2 * [GIVEN, RANDOM, PERTURBED], strict=True)])
def test_climbs_without_noise_match_the_reference(shape: tuple[int, ...], start: int) -> None:
    compare(shape, start, 3.0, 0.0, np.float32)


@pytest.mark.parametrize("shape", [SHAPES[1], (3, 5, 21, 2, 2, 1, 2)])
def test_climbs_in_double_precision_match_the_reference(shape: tuple[int, ...]) -> None:
    compare(shape, RANDOM, 2.0, 1.0, np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("max_sweeps", [100, 2])
def test_programs_share_the_samples(max_sweeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run_together(monkeypatch, 3, triton_climb)
    for name, size in {"FIRST": 32, "SCAN": 32, "VISIT": 16}.items():
        monkeypatch.setattr(triton_climb, name, size)
    compare((7, 15, 4, 4, 2, 2, 1), RANDOM, 3.0, 0.7, np.float32, max_sweeps)


@pytest.mark.parametrize("n_labels", [2, 3, 7, 12])
def test_all_bits_of_the_noise_match_the_reference(n_labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare thousands of sites, because the last bits of the noise decide about few of them."""
    for name, size in {"FIRST": 2048, "SCAN": 1024, "VISIT": 1024}.items():
        monkeypatch.setattr(triton_climb, name, size)
    compare((41, 43, n_labels, 8, 1, 2, 1), GIVEN, 2.0, 1.0, np.float64, max_sweeps=3, forbid=0.01)


def test_images_have_their_own_weights_and_fields() -> None:
    compare((2, 3, 3, 2, 1, 0, 1), PERTURBED, 2.0, 1.0, np.float32, n_images=2)


def test_climbs_stop_at_max_sweeps() -> None:
    compare(SHAPES[0], RANDOM, 3.0, 0.7, np.float32, max_sweeps=1)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_forbidden_labels_match_the_reference(n_labels: int) -> None:
    compare((4, 5, n_labels, 2, 1, 0, 1), RANDOM, 1.0, 1.0, np.float32, forbid=0.3)


def compare(
    shape: tuple[int, ...],
    start: int,
    weight: float,
    temperature: float,
    dtype: Any,
    max_sweeps: int = 100,
    forbid: float = 0.0,
    n_images: int = 1,
) -> None:
    """Compare labels and sweeps of two samples."""
    height, width, n_labels, _, _, row, column = shape
    rng = np.random.default_rng(1)
    scores = (3 * rng.normal(size=(n_images, n_labels, height * width))).astype(dtype)
    scores[:, 1:][rng.random(scores[:, 1:].shape) < forbid] = -np.inf
    right, down = (
        (weight * rng.random(edges)).astype(dtype) for edges in ((1, height, width - 1), (n_images, height - 1, width))
    )
    given = rng.integers(0, n_labels, (n_images, height * width)).astype(np.uint8)
    fields = fields_of(rng, shape, n_images, absent=not forbid)
    images, samples = range(FIRST_IMAGE, FIRST_IMAGE + n_images), range(FIRST_SAMPLE, FIRST_SAMPLE + 2)
    whole = (row, column, 2**33)
    how = (temperature, *KEY, FIRST_IMAGE, FIRST_SAMPLE, start)
    expected, found = (
        np.empty((n_images, height * width, 2), np.uint8),
        place(np.empty((n_images, 2, height * width), np.uint8)),
    )
    reference = GridClimb(scores.swapaxes(1, 2), right, down, *how, given, *whole, max_sweeps)
    moves = draw_moves(fields, KEY, images, samples, dtype)
    by_row = scores.reshape(n_images, n_labels, height, width).swapaxes(1, 2)
    sweeps = reference_climb.climb_fields(reference, by_row, fields, moves, expected)
    grid, draw = GridWindow(height, width, *whole, 2**40), Draw(*KEY, FIRST_IMAGE, FIRST_SAMPLE)
    placed = place(scores)
    terms = terms_of(fields, draw_moves(fields, KEY, images, samples, np.float64), grid, draw, placed)
    climb = Climb(Perturbation(PLAIN if temperature else NONE, temperature, *KEY), start, None, max_sweeps)
    made = climb_fields(placed, grid_field(place(right), place(down), grid), terms, draw, climb, place(given), found)
    np.testing.assert_array_equal(found.cpu().numpy().swapaxes(1, 2), expected)
    np.testing.assert_array_equal(made.cpu().numpy(), sweeps)


def fields_of(rng: np.random.Generator, shape: tuple[int, ...], n_images: int, absent: bool = True) -> Fields:
    """Return fields of random sizes, with labels that may be absent."""
    _, _, n_labels, cell, n_scales, _, _ = shape
    presence = np.r_[1.0, np.full(n_labels - 1, 0.6 if absent else 1.0)][None]
    return quantised(3 * rng.random((n_images, n_scales, n_labels)), cell, np.full((1, n_labels), 0.5), presence)


MODELS = {
    "Potts": lambda unary: lp.Potentials.grid(unary, 0.8),
    "repulsive, 2 labels": lambda unary: lp.Potentials.grid(unary[..., :2], -0.5),
    "8 neighbours": lambda unary: lp.Potentials.grid(unary, 0.4, connectivity=8),
    "graph": lambda unary: lp.Potentials.graph(unary.reshape(2, -1, 3), [[i, i + 1] for i in range(29)], 0.7),
}


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "votes") for name in MODELS), ("Potts", "conditional"), ("graph", "conditional")]
)
def test_locpmap_with_fields_matches_the_reference(name: str, kind: str) -> None:
    compare_backends(name, kind)


@pytest.mark.slow
def test_rows_with_fields_match_the_reference() -> None:
    compare_backends("Potts", blocks="rows")


def compare_backends(name: str, kind: str = "votes", **options: Any) -> None:
    """Compare samples and probabilities of `infer` on two images."""
    potentials = MODELS[name](np.random.default_rng(2).normal(size=(2, 5, 6, 3)))
    structure = potentials.structure
    clusters = cluster_hierarchy(structure, 2) if isinstance(structure, Graph) else None
    fields = lp.ErrorFields([1.0, 2.0], cell=2, shared=0.5, clusters=clusters)
    decoder = lp.LocPMAP(2, fields=fields, probability=kind, keep_samples=True, start="perturbed", **options)
    found, expected = (lp.infer(potentials, decoder, seed=5, backend=by) for by in ("triton", "reference"))
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_allclose(found.probability, expected.probability, rtol=0, atol=1e-9)
    assert (found.n_sweeps, found.backend) == (expected.n_sweeps, "triton")


@pytest.mark.parametrize("name", ["Potts", "graph"])
def test_a_span_gets_the_fields_of_its_images(name: str) -> None:
    potentials = MODELS[name](np.random.default_rng(2).normal(size=(2, 5, 6, 3)).astype(np.float32))
    structure = potentials.structure
    clusters = cluster_hierarchy(structure, 1) if isinstance(structure, Graph) else None
    sizes = np.random.default_rng(4).random((2, 1, 3))
    decoder = lp.LocPMAP(2, fields=lp.ErrorFields(sizes, shared=0.5, clusters=clusters))
    found = []
    for backend in ("triton", "reference"):
        problem = make_problem(potentials, decoder, 5, 0, backend, "auto", None)
        climb = decoder.init(problem).draw.args[1]  # type: ignore[attr-defined]
        unary = problem.kernels.add_fields(problem.view, climb, Span(1, 2, 1, 1))[1]
        found.append(unary if backend == "reference" else unary.cpu().numpy())
    np.testing.assert_array_equal(*found)
