"""Numba kernels: the samples of the reference on odd shapes, and no recompilation for new shapes."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numba import types
from tests.support.grid_cases import CASES, FORMS, SHAPES, Case, model_of

from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.potentials import Potentials
from locpmap.result import Result, Status


def check_against_reference(pot: Potentials, case: Case) -> None:
    how: dict[str, Any] = {"seed": case.seed, "first_image": case.seed % 5}
    decoder = case.decoder(pot, 6, keep_samples=True)
    found, reference = (infer(pot, decoder, backend=b, **how) for b in ("numba", "reference"))
    np.testing.assert_array_equal(found.samples, reference.samples)
    np.testing.assert_allclose(found.probability, reference.probability, rtol=0, atol=1e-9)
    assert (found.n_sweeps, found.status, found.noise) == (reference.n_sweeps, reference.status, reference.noise)
    without_samples = infer(pot, case.decoder(pot, 6), backend="numba", **how)
    np.testing.assert_array_equal(without_samples.probability, found.probability)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 21])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_form(shape: tuple[int, int], n_labels: int, form: str) -> None:
    case = CASES["votes of a batch"]
    check_against_reference(model_of(case, shape, n_labels, form), case)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_every_case_and_form(name: str, n_labels: int, form: str) -> None:
    check_against_reference(model_of(CASES[name], (5, 7), n_labels, form), CASES[name])


def test_cases_cover_all_option_values() -> None:
    for field, values in (
        *((name, {False, True}) for name in ("batch", "window", "forbidden", "plain")),
        ("temperature", {0.3, 1.0, 2.5}),
        ("max_sweeps", {2, 100}),
    ):
        assert {getattr(case, field) for case in CASES.values()} == values
    combinations = {(case.start, case.probability, case.plain) for case in CASES.values()}
    starts = ("random", "perturbed", "given")
    assert combinations == set(itertools.product(starts, ("votes", "conditional"), (False, True)))


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numba_agrees_on_an_image_of_prime_size(n_labels: int, dtype: Any) -> None:
    """The 70 samples fill a machine word.  Single precision may round a near tie differently."""
    rng = np.random.default_rng(n_labels)
    for pairwise in (0.7, (rng.random((11, 12)), rng.random((10, 13)))):
        pot = Potentials.grid(rng.normal(size=(11, 13, n_labels)).astype(dtype), pairwise)
        found, reference = (infer(pot, LocPMAP(70, keep_samples=True), backend=b) for b in ("numba", "reference"))
        wrong = (found.samples != reference.samples).mean()
        assert wrong == 0 if dtype == np.float64 else wrong < 1e-4
        assert found.probability.dtype == dtype


def check_samples(pot: Potentials, decoder: LocPMAP) -> Result:
    """Check that Numba (one thread, to fill whole words) and the reference draw equal samples; return the former."""
    found, reference = (infer(pot, decoder, backend=b, n_threads=1) for b in ("numba", "reference"))
    np.testing.assert_array_equal(found.samples, reference.samples)
    assert (found.n_sweeps, found.status) == (reference.n_sweeps, reference.status)
    return found


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize(("length", "least_sweeps"), [(20, 7), (39, 13)])
def test_long_climbs_on_tall_images(length: int, least_sweeps: int, upward: bool) -> None:
    """Climbs take more sweeps than the kernel combines into one pass over the image.

    Columns fixed to label 2 separate corridors, in which label 1 replaces label 0.  Inside a run of label 0, two equal
    neighbours outweigh the unary of a site.  Only sites at the end of the run change, one or two per sweep.
    """
    rng = np.random.default_rng(length)
    fixed, corridor = np.arange(0, 15, 2), np.arange(1, 15, 2)
    unary = rng.normal(size=(40, 15, 3))
    unary[:, fixed, :2] = unary[:, corridor, 2:] = -np.inf
    unary[:, corridor, 1] += 4.0
    unary[0, corridor, 0] = -np.inf
    start = np.full((40, 15), 2)
    start[:, corridor] = 1
    start[1 : 1 + length, corridor] = 0
    if upward:
        unary, start = unary[::-1], start[::-1]
    found = check_samples(Potentials.grid(unary, 20.0), LocPMAP(70, start=start, keep_samples=True))
    assert found.n_sweeps >= least_sweeps
    assert found.status == Status.COMPLETE


@pytest.mark.parametrize("n_samples", [120, 144])
def test_rounds_that_start_inside_a_machine_word(n_samples: int) -> None:
    """The start bits of samples 56 to 119 and 96 to 143 span three words and two Philox calls."""
    rng = np.random.default_rng(n_samples)
    pot = Potentials.grid(rng.normal(size=(19, 33, 2)), 0.4)
    found = check_samples(pot, LocPMAP(n_samples, probability="votes", keep_samples=True))
    packed = infer(pot, LocPMAP(n_samples, probability="votes"), backend="numba")
    np.testing.assert_array_equal(packed.probability, (found.samples[..., None] == [0, 1]).mean(axis=0))
    np.testing.assert_array_equal(packed.probability, found.probability)


def test_uniforms_undecided_by_their_leading_bits() -> None:
    """Label 1 needs a uniform below 0x8000FFFF / 2^32; its leading half 0x8000 alone does not decide that."""
    p = 0x8000FFFF / 2**32
    unary = np.broadcast_to([0.0, np.log(p / (1 - p))], (64, 64, 2))
    check_samples(Potentials.grid(unary, 0.0), LocPMAP(128, start="perturbed", keep_samples=True))


def test_two_hundred_labels() -> None:
    """Pairs of likely labels differ by 128, that is, only in the leading bit of a byte."""
    rng = np.random.default_rng(200)
    unary = rng.normal(size=(9, 14, 200))
    unary[..., [3, 131, 60, 188]] += 6.0
    check_samples(
        Potentials.grid(unary, (2 * rng.random((9, 13)), 2 * rng.random((8, 14)))), LocPMAP(24, keep_samples=True)
    )


@pytest.mark.parametrize("n_labels", [2, 3, 7])
@pytest.mark.parametrize("weight", [14.0, 61.0, 100.0, 250.0, 800.0])
def test_weights_beyond_single_precision(weight: float, n_labels: int) -> None:
    """Exponentials of the weights are tiny or zero in single precision; the last one is zero even in double."""
    rng = np.random.default_rng(n_labels)
    for scale in (0.1, 1.0, 3.0):
        unary = rng.normal(size=(8, 21, n_labels), scale=scale * weight)
        unary[rng.random(unary.shape) < 0.1] = -np.inf
        unary[..., 0] = np.maximum(unary[..., 0], -weight)
        check_samples(Potentials.grid(unary, weight), LocPMAP(16, keep_samples=True))


KERNELS = ("climb_sites", "climb_potts", "climb_bits", "votes", "bit_votes", "conditionals", "bit_conditionals")


def type_without_layout(argument: Any) -> Any:
    """Return a numba type without its memory layout and mutability."""
    if isinstance(argument, types.Array):
        return str(argument.dtype), argument.ndim
    members = getattr(argument, "types", None)  # of a tuple
    return str(argument) if members is None else tuple(type_without_layout(member) for member in members)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_shapes_and_layouts_do_not_recompile_kernels(n_labels: int) -> None:
    """Compiling a kernel takes seconds, so new shapes and layouts of arrays must not trigger it."""

    def decode(pot: Potentials, start: Any) -> None:
        for probability in ("votes", "conditional"):
            infer(pot, LocPMAP(2, start=start, probability=probability))

    def model(shape: tuple[int, int], form: str, images: tuple[int, ...]) -> Potentials:
        weights: Any = (np.ones((*images, shape[0], shape[1] - 1)), np.ones((shape[0] - 1, shape[1])))
        pairwise = {"weight": 1.0, "weights": weights, "table": np.eye(n_labels)}[form]
        return Potentials.grid(np.zeros((*images, *shape, n_labels)), pairwise)

    for shape, form, images in itertools.product(SHAPES, ("weight", "weights", "table"), ((), (3,))):
        decode(model(shape, form, images), "random")
        read_only = np.zeros((*images, *shape), int)
        read_only.flags.writeable = False
        decode(model(shape, form, images), read_only)
        decode(model(shape, form, images), np.zeros((*images, *shape), np.uint8).T.copy().T)
    for name in KERNELS:
        function: Any = kernel_of("numba", name)
        kernel = vars(import_module(function.__module__)).get("climb_images", function)  # the compiled part
        compiled = [tuple(type_without_layout(argument) for argument in s) for s in kernel.signatures]
        assert len(set(compiled)) == len(compiled), f"{name} was compiled for arrays that differ in layout only"
