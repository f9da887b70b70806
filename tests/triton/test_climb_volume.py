"""LocPMAP on volumes matches the reference: samples, sweeps, probabilities and error fields, on odd shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.volumes import odd_volume
from tests.triton.placing import place
from tests.triton.together import run_together

import locpmap as lp
from locpmap.kernels.fields import draw_moves, quantised
from locpmap.kernels.model import VolumeWindow
from locpmap.kernels.reference.add_volume_fields import add_volume_fields
from locpmap.kernels.triton import sampling
from locpmap.kernels.triton.climb import climb_fields as triton_climb
from locpmap.kernels.triton.climb.add_fields import add_fields, terms_of
from locpmap.kernels.triton.philox import Draw

SHAPES = [(1, 1, 7), (1, 4, 3), (3, 4, 5), (2, 5, 4), (9, 2, 1), (2, 1, 1)]
FIELDS = lp.ErrorFields([0.6, 1.2], cell=2, shared=0.3)


def compare(pot: lp.Potentials, decoder: lp.LocPMAP, other: str = "reference") -> lp.Result:
    """Compare samples, sweeps and probabilities of `infer` with those of another backend, and return the result."""
    found, expected = (lp.infer(pot, decoder, seed=7, backend=by) for by in ("triton", other))
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_allclose(found.probability, expected.probability, rtol=0, atol=2e-6)
    assert (found.n_sweeps, found.noise, found.backend) == (expected.n_sweeps, expected.noise, "triton")
    return found


@pytest.mark.parametrize("n_labels", [2, 3, 9])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_samples_match_the_reference(shape: tuple[int, int, int], n_labels: int) -> None:
    starts = ("random", "perturbed", np.zeros((2, *shape), int))
    which = (SHAPES.index(shape) + n_labels) % 3
    pot = odd_volume(shape, n_labels, per_edge=bool(which), seed=n_labels)
    compare(pot, lp.LocPMAP(n_samples=3, start=starts[which], keep_samples=True))


@pytest.mark.parametrize("start", ["random", "perturbed"])
def test_a_whole_volume_matches_the_reference(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"FIRST": 2048, "SCAN": 512, "VISIT": 512}.items():  # fewer programs for the interpreter
        monkeypatch.setattr(triton_climb, name, size)
    rng = np.random.default_rng(0)
    pot = lp.Potentials.volume(rng.normal(size=(11, 10, 13, 4)).astype(np.float32), 0.6)
    compare(pot, lp.LocPMAP(n_samples=5, start=start, keep_samples=True, max_sweeps=4))


@pytest.mark.slow
def test_programs_share_a_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    run_together(monkeypatch, 3, triton_climb)
    for name, size in {"FIRST": 32, "SCAN": 32, "VISIT": 16}.items():
        monkeypatch.setattr(triton_climb, name, size)
    compare(odd_volume((3, 6, 7), 4), lp.LocPMAP(n_samples=2, keep_samples=True))


@pytest.mark.parametrize("start", ["random", "perturbed"])
def test_climbs_without_noise_match_the_reference(start: str) -> None:
    compare(odd_volume((2, 4, 3), 3), lp.LocPMAP(n_samples=2, temperature=0.0, start=start, keep_samples=True))


@pytest.mark.parametrize("kind", ["votes", "conditional"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_samples_with_fields_match_the_reference(n_labels: int, kind: str) -> None:
    compare(odd_volume((3, 4, 5), n_labels), lp.LocPMAP(3, fields=FIELDS, keep_samples=True, probability=kind))


@pytest.mark.parametrize("kind", ["votes", "conditional"])
def test_labels_that_may_be_absent_match_those_of_numba(kind: str) -> None:
    """A sample may lose label 0, the only one of masked sites, for which the reference warns."""
    rng = np.random.default_rng(0)
    pot = lp.Potentials.volume(rng.normal(size=(3, 4, 5, 3)), 0.8, mask=rng.random((3, 4, 5)) < 0.3)
    fields = replace(FIELDS, presence=[0.5, 1.0, 0.5])
    compare(pot, lp.LocPMAP(6, fields=fields, keep_samples=True, probability=kind), "numba")


@pytest.mark.parametrize(("shape", "cell", "n_scales"), [((5, 7, 6), 2, 3), ((1, 3, 4), 1, 2), ((9, 2, 1), 4, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adds_the_fields_of_the_reference(shape: tuple[int, int, int], cell: int, n_scales: int, dtype: Any) -> None:
    rng, key, n_labels = np.random.default_rng(2), (3, 2**32 - 4), 3
    sizes, ones = 3 * rng.random((2, n_scales, n_labels)), np.ones((1, n_labels))
    fields = quantised(sizes, cell, 0.5 * ones, ones, n_axes=3)
    unary = rng.normal(size=(2, int(np.prod(shape)), n_labels)).astype(dtype)
    window = VolumeWindow(shape, (5, 3, 17), (40, 40), ())
    expected, found = np.empty_like(unary), place(unary)
    moves = draw_moves(fields, key, range(3, 5), range(7, 8), dtype, n_axes=3)
    add_volume_fields(unary, window, fields, moves, key, 3, 7, expected)
    moves = draw_moves(fields, key, range(3, 5), range(7, 8), np.float64, n_axes=3)
    add_fields(place(unary), terms_of(fields, moves, window, Draw(*key, 3, 7), found), found)
    np.testing.assert_array_equal(found.cpu().numpy(), expected)


def test_windows_are_parts_of_the_whole_volume() -> None:
    """Without coupling, samples of a window are those of the whole volume there."""
    unary = np.random.default_rng(0).normal(size=(3, 4, 5, 3))
    decoder = lp.LocPMAP(n_samples=2, keep_samples=True)
    whole = compare(lp.Potentials.volume(unary, 0.0), decoder)
    window = lp.Potentials.volume(unary[1:, 1:3, 2:], 0.0, window=(1, 1, 2, 4, 5))
    np.testing.assert_array_equal(compare(window, decoder).samples, whole.samples[:, 1:, 1:3, 2:])
    compare(lp.Potentials.volume(unary[1:], 0.9, window=(1, 0, 0, 4, 5)), decoder)  # the other colour comes first


def test_results_do_not_depend_on_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pot, decoder = odd_volume((2, 3, 4), 3), lp.LocPMAP(n_samples=5, keep_samples=True)
    together = lp.infer(pot, decoder, backend="triton")
    monkeypatch.setattr(sampling, "ROUND_BYTES", 0)  # one sample at a time
    alone = lp.infer(pot, decoder, backend="triton")
    assert together.samples.tobytes() == alone.samples.tobytes()
    assert together.probability.tobytes() == alone.probability.tobytes()


# 26 neighbours


@pytest.mark.parametrize(
    ("shape", "n_labels"), [*zip(SHAPES, (18, 7, 3, 2, 7, 18), strict=True), ((3, 4, 5), 7), ((1, 4, 3), 3)], ids=str
)
def test_samples_with_26_neighbours_match_the_reference(shape: tuple[int, int, int], n_labels: int) -> None:
    starts = ("random", "perturbed", np.zeros((2, *shape), int))
    which = (SHAPES.index(shape) + n_labels) % 3
    pot = odd_volume(shape, n_labels, 26, per_edge=bool(which), seed=n_labels)
    compare(pot, lp.LocPMAP(n_samples=5, temperature=0.7, start=starts[which], keep_samples=True))


@pytest.mark.parametrize("start", ["random", "perturbed"])
def test_forbidden_labels_with_26_neighbours(start: str) -> None:
    rng = np.random.default_rng(0)
    unary = np.where(rng.random((3, 4, 5, 4)) < 0.3, -np.inf, rng.normal(size=(3, 4, 5, 4)))
    unary[..., 1] = 0
    compare(lp.Potentials.volume(unary, 0.2, connectivity=26), lp.LocPMAP(4, start=start, keep_samples=True))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_fields_with_26_neighbours_match_numba(n_labels: int) -> None:
    compare(odd_volume((3, 4, 5), n_labels, 26), lp.LocPMAP(3, fields=FIELDS, keep_samples=True), "numba")
