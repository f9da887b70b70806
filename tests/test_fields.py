"""Error fields: backends, invariance, the distribution of the fields, and LocPMAP given the fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.arrays import frozen
from locpmap.graphs import Graph, cluster_hierarchy
from locpmap.inference.api import make_problem
from locpmap.kernels.cpu import totals
from locpmap.kernels.fields import draw_moves, quantised
from locpmap.kernels.numba.add_fields import add_fields
from locpmap.kernels.numba.climb_fields import WAVES, climb_fields
from locpmap.kernels.perturbation import GIVEN, PERTURBED, RANDOM, GridClimb
from locpmap.kernels.reference.add_fields import add_fields as reference_add_fields
from locpmap.kernels.reference.climb_fields import climb_fields as reference_climb_fields
from locpmap.kernels.spec import Span

KEY = (12345, 678)
# height, width, labels, cell, scales, row, column
SHAPES = [
    (13, 17, 5, 4, 3, 0, 0),
    (9, 30, 2, 1, 4, 7, 5),
    (40, 33, 3, 8, 2, 100, 3),
    (5, 5, 4, 2, 1, 0, 0),
    (1, 20, 9, 4, 5, 3, 11),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numba_adds_the_same_fields(shape: tuple[int, ...], dtype: Any) -> None:
    height, width, n_labels, cell, n_scales, row, column = shape
    rng = np.random.default_rng(0)
    unary = frozen(rng.normal(size=(2, height * width, n_labels)).astype(dtype))
    fields = quantised(3 * rng.random((2, n_scales, n_labels)), cell, np.full((1, n_labels), 0.5), _presence(n_labels))
    moves = draw_moves(fields, KEY, range(3, 5), range(7, 8), dtype)
    ours, expected = np.empty_like(unary), np.empty_like(unary)
    for add, out in ((add_fields, ours), (reference_add_fields, expected)):
        add(unary, (height, width, row, column), fields, moves, KEY, 3, 7, out)
    np.testing.assert_array_equal(ours, expected)
    assert np.abs(expected - unary)[np.isfinite(expected)].max() > 0.1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("start", [RANDOM, PERTURBED, GIVEN])
@pytest.mark.parametrize(("weight", "temperature"), [(1.0, 1.0), (4.0, 0.2), (2.0, 0.0)])
def test_numba_climbs_to_the_same_labels(shape: tuple[int, ...], start: int, weight: float, temperature: float) -> None:
    height, width, n_labels, cell, n_scales, row, column = shape
    rng = np.random.default_rng(1)
    scores = frozen((3 * rng.normal(size=(2, height, n_labels, width))).astype(np.float32))
    right, down = weight * rng.random((1, height, width - 1)), weight * rng.random((2, height - 1, width))
    fields = quantised(3 * rng.random((1, n_scales, n_labels)), cell, np.full((1, n_labels), 0.5), _presence(n_labels))
    moves = draw_moves(fields, KEY, range(3, 5), range(8, 11), np.float32)
    given = rng.integers(0, n_labels, (2, height * width)).astype(np.uint8)
    climb = GridClimb(
        frozen(scores.swapaxes(2, 3)).reshape(2, height * width, n_labels),
        frozen(right.astype(np.float32)),
        frozen(down.astype(np.float32)),
        temperature,
        *KEY,
        3,
        8,
        start,
        given,
        row,
        column,
        column + width + 3,
        100,
    )
    ours, expected = (np.empty((2, height * width, 3), np.uint8) for _ in range(2))
    sweeps = climb_fields(climb, scores, fields, moves, ours)
    np.testing.assert_array_equal(sweeps, reference_climb_fields(climb, scores, fields, moves, expected))
    np.testing.assert_array_equal(ours, expected)


def test_numba_climbs_to_the_same_labels_beyond_the_wavefront() -> None:
    rng = np.random.default_rng(2)
    height, width, n_labels = 45, 40, 21
    scores = rng.normal(size=(1, height, n_labels, width)).astype(np.float32)
    scores[:, :, 5][rng.random((1, height, width)) < 0.3] = -np.inf
    scores = frozen(scores)
    right, down = (frozen(np.full((1, *shape), 3, np.float32)) for shape in ((height, width - 1), (height - 1, width)))
    fields = quantised(np.full((1, 4, n_labels), 0.7), 4, np.zeros((1, n_labels)), np.ones((1, n_labels)))
    moves = draw_moves(fields, KEY, range(1), range(6), np.float32)
    unary = frozen(scores.swapaxes(2, 3)).reshape(1, -1, n_labels)
    nothing = np.empty((0, 0), np.uint8)
    climb = GridClimb(unary, right, down, 0.19, *KEY, 0, 0, RANDOM, nothing, 0, 0, width, 100)
    ours, expected = (np.empty((1, height * width, 6), np.uint8) for _ in range(2))
    sweeps = climb_fields(climb, scores, fields, moves, ours)
    np.testing.assert_array_equal(sweeps, reference_climb_fields(climb, scores, fields, moves, expected))
    np.testing.assert_array_equal(ours, expected)
    assert sweeps.min() > WAVES


def _presence(n_labels: int) -> Any:
    """Return probabilities below 1 for all labels but the first."""
    return np.r_[1.0, np.full(n_labels - 1, 0.6)][None]


MODELS = {
    "Potts, 4 labels": lambda unary: lp.Potentials.grid(unary[..., :4], 0.8),
    "Potts, 2 labels": lambda unary: lp.Potentials.grid(unary[..., :2], 0.8),
    "repulsive, 2 labels": lambda unary: lp.Potentials.grid(unary[..., :2], -0.5),
    "8 neighbours": lambda unary: lp.Potentials.grid(unary, 0.4, connectivity=8),
    "table": lambda unary: lp.Potentials.grid(unary, np.arange(25.0).reshape(5, 5) / 20),
    "graph": lambda unary: lp.Potentials.graph(unary.reshape(-1, 5), [[i, i + 1] for i in range(6 * 9 - 1)], 0.7),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("blocks", ["sites", "rows"])
def test_a_sample_equals_that_of_the_unaries_plus_its_fields(name: str, blocks: str) -> None:
    """Given the fields, LocPMAP is unchanged, so its theorem holds given the fields."""
    if blocks == "rows" and name in ("8 neighbours", "graph"):
        pytest.skip("rows are blocks of grids with four neighbours")
    potentials = MODELS[name](np.random.default_rng(2).normal(size=(6, 9, 5)))
    structure = potentials.structure
    clusters = cluster_hierarchy(structure, 2) if isinstance(structure, Graph) else None
    fields = lp.ErrorFields([1.0, 2.0], shared=0.5, clusters=clusters)
    decoder = lp.LocPMAP(n_samples=4, blocks=blocks, fields=fields, keep_samples=True)
    result = lp.infer(potentials, decoder, seed=5)
    problem = make_problem(potentials, decoder, 5, 0, "auto", "cpu", None)
    climb = decoder.init(problem).draw.args[1]  # type: ignore[attr-defined]
    for m in range(4):
        unary = problem.kernels.add_fields(problem.view, climb, Span(0, 1, m, 1))
        given = replace(potentials, unary=frozen(unary))  # as `Potentials` does; kernels are compiled per type
        plain = lp.LocPMAP(n_samples=4, blocks=blocks, keep_samples=True)
        np.testing.assert_array_equal(result.samples[m], lp.infer(given, plain, seed=5).samples[m])


def test_conditional_probabilities_average_over_fields() -> None:
    potentials = MODELS["Potts, 4 labels"](np.random.default_rng(2).normal(size=(6, 9, 5)))
    fields = lp.ErrorFields([1.0], shared=0.5)
    found = {
        kind: lp.infer(potentials, lp.LocPMAP(2000, probability=kind, fields=fields), seed=0).probability
        for kind in ("votes", "conditional")
    }
    # A local maximum is not a sample of its conditionals, so votes and conditionals differ, but only slightly.
    assert np.abs(found["votes"] - found["conditional"]).mean() < 0.02
    plain = lp.infer(potentials, lp.LocPMAP(2000), seed=0).probability
    assert plain.max(-1).mean() > found["conditional"].max(-1).mean() + 0.02


def test_samples_do_not_depend_on_the_division_of_work() -> None:
    unary = np.random.default_rng(3).normal(size=(3, 21, 18, 3)).astype(np.float32)
    fields = lp.ErrorFields([0.5, 1.0, 1.0], shared=0.3, presence=[1.0, 0.7, 0.8])
    decoder = lp.LocPMAP(n_samples=20, fields=fields, keep_samples=True, probability="votes")
    potentials = lp.Potentials.grid(unary, 0.8)
    whole = lp.infer(potentials, decoder, seed=1, n_threads=1)
    np.testing.assert_array_equal(lp.infer(potentials, decoder, seed=1, n_threads=2).samples, whole.samples)
    last = lp.infer(lp.Potentials.grid(unary[2], 0.8), decoder, seed=1, first_image=2)
    np.testing.assert_array_equal(last.samples, whole.samples[:, 2])
    np.testing.assert_array_equal(list(lp.samples(potentials, decoder, seed=1, chunk=8)), whole.samples)
    np.testing.assert_array_equal(lp.infer(potentials, decoder, seed=1, backend="reference").samples, whole.samples)


def test_tiles_give_the_labels_of_the_whole_raster() -> None:
    unary = np.random.default_rng(4).normal(size=(70, 50, 3)).astype(np.float32)
    decoder = lp.LocPMAP(
        n_samples=6, fields=lp.ErrorFields([1.0, 1.0], shared=0.5), probability="votes", max_sweeps=4, start="perturbed"
    )
    whole = lp.infer(lp.Potentials.grid(unary, 0.6), decoder, seed=2)
    tiled = lp.infer_tiled(unary, 0.6, decoder, tile=32, seed=2)
    np.testing.assert_array_equal(np.asarray(tiled.labels), whole.labels)


@pytest.mark.parametrize("limit", ["FIELD_WORK", "ROUND_WORK"])
def test_large_images_are_refined_in_several_steps(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, shown = np.random.default_rng(5), []
    image, logits = rng.integers(0, 256, (24, 32, 3), np.uint8), rng.normal(size=(6, 8, 3))
    whole = lp.refine(image, logits)
    monkeypatch.setattr(totals, limit, 4000)
    parts = lp.refine(image, logits, progress=lambda done, total: shown.append(done))
    assert shown[-1] == 50
    assert (len(shown) > 1) == (limit == "FIELD_WORK")
    np.testing.assert_array_equal(parts.labels, whole.labels)
    assert parts.probability.tobytes() == whole.probability.tobytes()


def test_covariance_of_a_field_is_that_of_its_cells() -> None:
    """With a random phase, the covariance is (9/4) · k(dy) · k(dx), k the mean overlap of two interpolations."""
    cell, n = 4, 4000
    fields = quantised(np.array([[[1.0, 2.0]]]), cell, np.zeros((1, 2)), np.ones((1, 2)))
    values, zeros = np.empty((n, 12, 12, 2)), frozen(np.zeros((1, 144, 2)))
    for m in range(n):
        out = np.empty_like(zeros)
        moves = draw_moves(fields, KEY, range(1), range(m, m + 1), np.float64)
        add_fields(zeros, (12, 12, 0, 0), fields, moves, KEY, 0, m, out)
        values[m] = out.reshape(12, 12, 2)
    for k, size in enumerate((1.0, 2.0)):
        for distance in range(9):
            expected = size**2 * 2.25 * _overlap(0, cell) * _overlap(distance, cell)
            products = values[:, 2, 1, k] * values[:, 2, 1 + distance, k]
            assert abs(products.mean() - expected) < 4 * products.std() / np.sqrt(n) + 1e-3, (k, distance)
    between = values[:, 2, 2, 0] * values[:, 2, 2, 1]
    assert abs(between.mean()) < 4 * between.std() / np.sqrt(n)


def _overlap(distance: int, cell: int) -> float:
    """Return the mean over phases of the sum over nodes of the two sites' interpolation weights."""
    hat = lambda x: np.maximum(0, 1 - np.abs(x) / cell)  # noqa: E731
    nodes = np.arange(-3, 8) * cell
    return float(np.mean([(hat(p - nodes) * hat(p + distance - nodes)).sum() for p in range(cell)]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (lambda: lp.ErrorFields([-1.0]), "sizes holds a negative number"),
        (lambda: lp.ErrorFields([np.nan]), "sizes holds a negative number, NaN"),
        (lambda: lp.ErrorFields([1.0], shared=-1), "shared holds a negative number"),
        (lambda: lp.ErrorFields([1.0], cell=3), "cell is 3, expected 1, 2, 4, 8 or 16"),
        (lambda: lp.ErrorFields(np.ones((1, 1, 1, 1))), "sizes has shape"),
        (lambda: lp.ErrorFields([1.0] * 4), "cells of up to 32 pixels"),
        (lambda: lp.ErrorFields(np.ones((1, 7))), "sizes has shape"),
        (lambda: lp.ErrorFields([1.0], presence=[0.5, 0.5, 0.5]), "presence is below 1 for all labels"),
        (lambda: lp.ErrorFields([1.0], presence=[1.0, 0.0, 0.5]), "presence holds a number outside"),
        (lambda: lp.ErrorFields([1.0], clusters=np.zeros((1, 4), int)), "clusters is given for a grid"),
    ],
)
def test_wrong_fields_are_named(fields: Any, expected: str) -> None:
    with pytest.raises(lp.InputError, match=expected):
        lp.infer(lp.Potentials.grid(np.zeros((9, 8, 3)), 1.0), lp.LocPMAP(2, fields=fields()))


@pytest.mark.filterwarnings("error")
def test_one_label_has_nothing_to_choose() -> None:
    decoder = lp.LocPMAP(3, fields=lp.ErrorFields([1.0], shared=1.0))
    result = lp.infer(lp.Potentials.grid(np.zeros((5, 6, 1), np.float32), 1.0), decoder)
    assert (result.labels == 0).all()
    assert (result.probability == 1).all()


def test_fields_on_a_graph_need_clusters() -> None:
    potentials = lp.Potentials.graph(np.zeros((4, 2)), [[0, 1], [1, 2], [2, 3]], 1.0)
    with pytest.raises(lp.InputError, match="cluster_hierarchy"):
        lp.infer(potentials, lp.LocPMAP(2, fields=lp.ErrorFields([1.0])))
    with pytest.raises(lp.InputError, match="clusters has shape"):
        lp.infer(potentials, lp.LocPMAP(2, fields=lp.ErrorFields([1.0], clusters=np.zeros((1, 3), int))))
    shared = lp.infer(potentials, lp.LocPMAP(50, fields=lp.ErrorFields(shared=3.0), keep_samples=True), seed=0)
    assert (shared.samples == shared.samples[:, :1]).all(axis=1).mean() > 0.6


def test_fields_have_the_right_type() -> None:
    with pytest.raises(TypeError, match="expected an ErrorFields"):
        lp.LocPMAP(fields=[1.0])  # type: ignore[arg-type]
