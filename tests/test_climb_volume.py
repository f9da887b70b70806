"""The LocPMAP climb on volumes, its conditional probabilities and error fields: Numba against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.volumes import odd_volume

import locpmap as lp
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.cpu.sampling import links_of
from locpmap.kernels.fields import draw_moves, quantised
from locpmap.kernels.model import VolumeWindow
from locpmap.kernels.numba.add_volume_fields import add_volume_fields
from locpmap.kernels.numba.climb_volume import climb_volume as numba_climb
from locpmap.kernels.numba.volume_conditionals import volume_conditionals as numba_conditionals
from locpmap.kernels.perturbation import RANDOM, VolumeClimb
from locpmap.kernels.reference.add_volume_fields import add_volume_fields as reference_fields
from locpmap.kernels.reference.climb_volume import climb_volume as reference_climb
from locpmap.kernels.reference.conditionals import conditionals
from locpmap.kernels.reference.volume_conditionals import volume_conditionals

SHAPES = [(1, 1, 7), (1, 5, 7), (3, 4, 5), (19, 2, 1), (2, 1, 1)]
FIELDS = lp.ErrorFields([0.6, 1.2], cell=1, shared=0.3)


def both(pot: lp.Potentials, decoder: lp.LocPMAP, **options: Any) -> list[lp.Result]:
    decoder = replace(decoder, keep_samples=True)
    return [lp.infer(pot, decoder, seed=7, backend=name, **options) for name in ("numba", "reference")]


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("n_labels", [2, 3, 7, 18])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_samples_equal_those_of_the_reference(shape: tuple[int, int, int], n_labels: int, connectivity: int) -> None:
    for start in ("random", "perturbed", np.zeros((2, *shape), int)):
        for per_edge in (False, True):
            pot = odd_volume(shape, n_labels, connectivity, per_edge=per_edge)
            ours, reference = both(pot, lp.LocPMAP(n_samples=13, start=start))
            assert ours.noise == "lazy"
            np.testing.assert_array_equal(ours.samples, reference.samples)
            np.testing.assert_array_equal(ours.n_sweeps, reference.n_sweeps)
            np.testing.assert_allclose(ours.probability, reference.probability, atol=1e-7)
            np.testing.assert_allclose(ours.score, reference.score, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 6)], ids=str)
def test_conditionals_of_more_labels_than_a_byte_holds(shape: tuple[int, ...]) -> None:
    unary = np.random.default_rng(0).normal(size=(*shape, 300))
    unary[..., 280] += 6
    pot = (lp.Potentials.volume if len(shape) == 3 else lp.Potentials.grid)(unary, 1.0)
    ours, reference = both(pot, lp.LocPMAP(n_samples=5))
    np.testing.assert_allclose(ours.probability, reference.probability, atol=1e-9)


def test_fields_without_scales() -> None:
    ours, reference = both(odd_volume((3, 4, 5), 3), lp.LocPMAP(n_samples=5, fields=lp.ErrorFields([], shared=2.0)))
    np.testing.assert_array_equal(ours.samples, reference.samples)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_and_votes(temperature: float) -> None:
    decoder = lp.LocPMAP(n_samples=9, temperature=temperature, probability="votes", max_sweeps=2)
    ours, reference = both(odd_volume((4, 5, 6), 4), decoder)
    np.testing.assert_array_equal(ours.samples, reference.samples)
    np.testing.assert_array_equal(ours.probability, reference.probability)


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("n_labels", [2, 4])
def test_results_do_not_depend_on_threads_batches_and_chunks(n_labels: int, connectivity: int) -> None:
    pot = odd_volume((5, 6, 7), n_labels, connectivity)
    decoder = lp.LocPMAP(n_samples=30, keep_samples=True)
    whole = lp.infer(pot, decoder, seed=1, n_threads=1)
    for threads in (2, 3, 8):
        other = lp.infer(pot, decoder, seed=1, n_threads=threads)
        assert other.samples.tobytes() == whole.samples.tobytes()
        assert other.probability.tobytes() == whole.probability.tobytes()
    second = lp.infer(pot.part(slice(1, 2)), decoder, seed=1, first_image=1)
    assert second.samples.tobytes() == np.ascontiguousarray(whole.samples[:, 1:]).tobytes()
    assert np.stack(list(lp.samples(pot, decoder, seed=1, chunk=5))).tobytes() == whole.samples.tobytes()


@pytest.mark.parametrize("kernel", [volume_conditionals, numba_conditionals])
@pytest.mark.parametrize("connectivity", [4, 6, 26])
@pytest.mark.parametrize(("n_samples", "n_maps"), [(5, 5), (12, 12), (19, 19), (70, 3)])
@pytest.mark.parametrize("n_labels", [4, 9])
@pytest.mark.parametrize(("dtype", "unit"), [(np.int64, 2.0**40), (np.uint32, 2.0**24)])
def test_conditionals_equal_those_of_the_flat_model(
    connectivity: int, kernel: Any, dtype: Any, unit: float, n_labels: int, n_samples: int, n_maps: int
) -> None:
    """Kernels without edge lists agree with the general reference, on volumes and on grids."""
    rng = np.random.default_rng(0)
    weights = rng.random((2, 12, 4)), rng.random((2, 11, 5))
    pot = lp.Potentials.grid(rng.normal(size=(2, 12, 5, n_labels)), weights)
    pot = pot if connectivity == 4 else odd_volume((3, 4, 5), n_labels, connectivity)
    maps = rng.integers(0, n_labels, (2, 60, n_maps)).astype(np.uint8)
    labels = np.ascontiguousarray(maps[:, :, rng.permutation(np.arange(n_samples) % n_maps)])
    found, expected = np.zeros((2, 60, n_labels), dtype), np.zeros((2, 60, n_labels), np.int64)
    kernel(pot.unary, links_of(pot.view), labels, found, 0, 0, 7, 49)
    conditionals(pot.model, labels, expected, 0, 7, 49)
    rounding = 40 * 2.0**-40 + n_samples / 2 / unit
    np.testing.assert_allclose(found / unit, expected / 2.0**40, rtol=0, atol=rounding)


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("first", [0, 3])
def test_samples_at_any_position_of_a_vector(connectivity: int, first: int) -> None:
    """A kernel draws the same labels wherever its samples begin, and beside any others."""
    pot = odd_volume((5, 4, 3), 4, connectivity)
    view, labels = pot.view, np.empty((2, 60, 19), np.uint8)
    assert view.volume is not None
    job = VolumeClimb(
        *(view.unary, links_of(view), 1.0, 5, 6, 0, first, RANDOM, np.empty((0, 0), np.uint8)),
        *(view.volume.corner, view.volume.plane_shape, 100),
    )
    numba_climb(job, labels)
    for begin, stop in ((0, 8), (8, 16), (5, 6), (7, 19)):
        part = np.empty((2, 60, stop - begin), np.uint8)
        numba_climb(job._replace(first_sample=first + begin), part)
        np.testing.assert_array_equal(part, labels[:, :, begin:stop])
    expected = np.empty_like(labels)
    reference_climb(job, expected)
    np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("weight", [9.9, 10.1, 400.0])
def test_weights_beyond_single_precision(weight: float) -> None:
    """Sites whose weights sum to more than 60 are decided in double precision."""
    unary = 60 * np.random.default_rng(0).normal(size=(4, 5, 6, 4))
    ours, reference = both(lp.Potentials.volume(unary, weight), lp.LocPMAP(n_samples=9))
    np.testing.assert_array_equal(ours.samples, reference.samples)


@pytest.mark.parametrize("weight", [1e30, 1e37, 1e39])
def test_weights_too_large_for_single_precision(weight: float) -> None:
    rng = np.random.default_rng(0)
    weights = tuple(weight * rng.random(shape) for shape in ((4, 5, 5), (4, 4, 6), (3, 5, 6)))
    pot = lp.Potentials.volume(rng.normal(size=(4, 5, 6, 4)), weights)
    ours, reference = both(pot, lp.LocPMAP(n_samples=9))
    np.testing.assert_array_equal(ours.samples, reference.samples)


def test_totals_of_32_bits() -> None:
    """In single precision, probabilities of up to 255 samples are summed in 32 bits: half the memory."""
    pot = lp.Potentials.volume(np.random.default_rng(0).normal(size=(3, 4, 5, 3)).astype(np.float32), 0.5)
    double = lp.Potentials.volume(pot.unary.reshape(3, 4, 5, 3).astype(np.float64), 0.5)
    kernels = CpuKernels("numba")
    for n_samples, itemsize in ((255, 4), (256, 8)):
        assert kernels.start_totals(pot.view, "conditional", n_samples).dtype.itemsize == itemsize
    assert kernels.start_totals(double.view, "conditional", 50).dtype.itemsize == 8
    whole = lp.Potentials.volume(np.where(np.arange(3) == 1, 30, np.zeros((3, 4, 5, 3))).astype(np.float32), 0.5)
    certain = lp.infer(whole, lp.LocPMAP(n_samples=255), seed=0).probability  # sums close to 2^32
    np.testing.assert_allclose(certain[..., 1], 1, atol=1e-7)


@pytest.mark.parametrize("weight", [150.0, -150.0, 3.0])
def test_strong_weights_neither_overflow_nor_vanish(weight: float) -> None:
    """Sums of weights beyond the range of exponentials are handled by logarithms."""
    unary = np.random.default_rng(0).normal(size=(3, 3, 3, 3))
    start = np.random.default_rng(1).integers(0, 3, (3, 3, 3))
    decoder = lp.LocPMAP(n_samples=2, max_sweeps=1, start=start)
    ours, reference = both(lp.Potentials.volume(unary, weight, connectivity=26), decoder)
    np.testing.assert_allclose(ours.probability, reference.probability, atol=1e-9)
    assert np.isfinite(ours.probability).all()


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("cell", [1, 2, 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fields_equal_those_of_the_reference(shape: tuple[int, int, int], cell: int, n_labels: int) -> None:
    rng, key = np.random.default_rng(2), (3, 4)
    sizes = 3 * rng.random((2, 3, n_labels))
    fields = quantised(sizes, cell, np.full((1, n_labels), 0.5), np.ones((1, n_labels)), n_axes=3)
    moves = draw_moves(fields, key, range(3, 5), range(7, 8), np.float32, n_axes=3)
    unary = rng.normal(size=(2, int(np.prod(shape)), n_labels)).astype(np.float32)
    window = VolumeWindow(shape, (5, 3, 17), (40, 40), ())
    ours, reference = np.empty_like(unary), np.empty_like(unary)
    add_volume_fields(unary, window, fields, moves, key, 3, 7, ours)
    reference_fields(unary, window, fields, moves, key, 3, 7, reference)
    assert ours.tobytes() == reference.tobytes()


def test_fields_of_a_window_are_those_of_the_whole() -> None:
    key, n_labels = (3, 4), 3
    fields = quantised(np.ones((1, 3, n_labels)), 4, np.zeros((1, n_labels)), np.ones((1, n_labels)), n_axes=3)
    moves = draw_moves(fields, key, range(1), range(1), np.float32, n_axes=3)
    whole = np.zeros((1, 20 * 21 * 22, n_labels), np.float32)
    part = np.zeros((1, 5 * 6 * 7, n_labels), np.float32)
    add_volume_fields(whole, VolumeWindow((20, 21, 22), (0, 0, 0), (21, 22), ()), fields, moves, key, 0, 0, whole)
    add_volume_fields(part, VolumeWindow((5, 6, 7), (9, 8, 7), (21, 22), ()), fields, moves, key, 0, 0, part)
    inside = whole.reshape(20, 21, 22, n_labels)[9:14, 8:14, 7:14]
    np.testing.assert_array_equal(part.reshape(inside.shape), inside)


@pytest.mark.parametrize("cell", [1, 4])
def test_fields_have_their_standard_deviation(cell: int) -> None:
    """The mean variance over voxels is 1 for large cells; for small ones, the voxels nearest to nodes count more."""
    fields = quantised(np.ones((1, 1, 2)), cell, np.zeros((1, 2)), np.ones((1, 2)), n_axes=3)
    shape, variances = (8, 8, 8), []
    for m in range(200):
        moves = draw_moves(fields, (1, 2), range(1), range(m, m + 1), np.float64, n_axes=3)
        out = np.zeros((1, 512, 2))
        add_volume_fields(out, VolumeWindow(shape, (0, 0, 0), (8, 8), ()), fields, moves, (1, 2), 0, m, out)
        variances.append((out**2).mean())
    error = np.std(variances, ddof=1) / np.sqrt(len(variances))
    assert abs(np.mean(variances) - (1 + 0.5 / cell**2) ** 3) < 5 * error


@pytest.mark.parametrize("connectivity", [6, 26])
@pytest.mark.parametrize("n_labels", [2, 4])
def test_samples_with_fields_equal_those_of_the_reference(n_labels: int, connectivity: int) -> None:
    pot = odd_volume((4, 5, 6), n_labels, connectivity)
    ours, reference = both(pot, lp.LocPMAP(n_samples=5, fields=FIELDS))
    np.testing.assert_array_equal(ours.samples, reference.samples)
    np.testing.assert_allclose(ours.probability, reference.probability, atol=1e-6)
    threads = lp.infer(pot, lp.LocPMAP(n_samples=5, fields=FIELDS, keep_samples=True), seed=7, n_threads=3)
    assert threads.samples.tobytes() == ours.samples.tobytes()
    plain = lp.infer(pot, lp.LocPMAP(n_samples=5, keep_samples=True), seed=7)
    assert (plain.samples != ours.samples).any()


def test_no_flat_model_is_built() -> None:
    """Samples, conditional probabilities and scores need no lists of edges, with and without error fields."""
    pot = lp.Potentials.volume(np.random.default_rng(0).normal(size=(4, 4, 4, 3)), 0.5)
    for fields in (None, FIELDS):
        result = lp.infer(pot, lp.LocPMAP(n_samples=3, fields=fields), backend="numba", device="cpu")
        assert np.isfinite(result.score)
    assert "flat" not in pot.view.__dict__
    assert result.score == pytest.approx(pot.score(result.labels))


def test_coarse_fields_are_refused() -> None:
    pot = lp.Potentials.volume(np.zeros((4, 4, 4, 2)), 1.0)
    with pytest.raises(lp.InputError, match="expected at most the larger side"):
        lp.infer(pot, lp.LocPMAP(fields=lp.ErrorFields([1.0], cell=8)))
