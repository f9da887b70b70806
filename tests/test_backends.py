"""The numba kernels draw what the reference draws, on odd shapes, and compile once for all of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numba import types
from tests.oracles.models import random_unary

from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels import choose_backend
from locpmap.potentials import Potentials
from locpmap.result import Result, Status

SHAPES = [(1, 1), (1, 7), (7, 1), (2, 2), (5, 7)]
FORMS = ["weight", "negative weight", "weights", "either sign", "table", "hard tables"]


def odd_model(shape: tuple[int, int], n_labels: int, form: str, turn: int) -> Potentials:
    """A grid of this shape; whether it is a batch, a window, or has forbidden labels goes round with ``turn``."""
    rng = np.random.default_rng(turn)
    images: tuple[int, ...] = (3,) if turn % 3 == 0 else ()
    height, width = shape
    unary = random_unary((*images, *shape), n_labels, 0.2 if turn % 4 == 0 else 0.0, rng)
    right, down = rng.normal(size=(*images, height, width - 1)), rng.normal(size=(height - 1, width))
    tables = [rng.normal(size=(*w.shape, n_labels, n_labels)) for w in (right, down)]
    pairwise: Any = {
        "weight": 0.9,
        "negative weight": -0.4,
        "weights": (np.abs(right), np.abs(down)),
        "either sign": (right, down),
        "table": rng.normal(size=(n_labels, n_labels)),
        "hard tables": [np.where(rng.random(t.shape) < 0.1, -np.inf, t) for t in tables],
    }[form]
    return Potentials.grid(unary, pairwise, window=(3, 2, 11) if turn % 2 else None)


def options(pot: Potentials, turn: int) -> dict[str, Any]:
    """Starts, temperatures and ways to count, going round at different paces."""
    given_start = pot.unflatten(pot.unary.argmax(axis=2))
    start: Any = ("random", "perturbed", given_start)[turn % 3]
    return {
        "start": start,
        "temperature": (1.0, 0.3, 2.5)[turn // 2 % 3],
        "noise": ("auto", "plain")[turn // 3 % 2],
        "probability": ("votes", "conditional")[turn // 4 % 2],
        "max_sweeps": (100, 2)[turn // 5 % 2],
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 21])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numba_draws_what_the_reference_draws(shape: tuple[int, int], n_labels: int, form: str) -> None:
    first = 7 * SHAPES.index(shape) + 5 * n_labels + FORMS.index(form)
    for turn in (first, first + 13):
        pot = odd_model(shape, n_labels, form, turn)
        how: dict[str, Any] = options(pot, turn) | {"n_samples": 6, "seed": turn, "first_image": turn % 5}
        mine, truth = (infer(pot, backend=b, keep_samples=True, **how) for b in ("numba", "reference"))
        np.testing.assert_array_equal(mine.samples, truth.samples)
        np.testing.assert_allclose(mine.probability, truth.probability, rtol=0, atol=1e-9)
        assert (mine.n_sweeps, mine.status, mine.noise) == (truth.n_sweeps, truth.status, truth.noise)
        np.testing.assert_array_equal(infer(pot, backend="numba", **how).probability, mine.probability)


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numba_agrees_on_an_image_of_prime_size(n_labels: int, dtype: Any) -> None:
    """Large enough for 128 samples of it to fill machine words; single precision may round a near tie differently."""
    rng = np.random.default_rng(n_labels)
    for pairwise in (0.7, (rng.random((11, 12)), rng.random((10, 13)))):
        pot = Potentials.grid(rng.normal(size=(11, 13, n_labels)).astype(dtype), pairwise)
        mine, truth = (infer(pot, LocPMAP(70, keep_samples=True), backend=b) for b in ("numba", "reference"))
        wrong = (mine.samples != truth.samples).mean()
        assert wrong == 0 if dtype == np.float64 else wrong < 1e-4
        assert mine.probability.dtype == dtype


def both(pot: Potentials, decoder: LocPMAP) -> Result:
    """The same run in numba (one thread, so that it fills whole words) and in the reference: the same samples."""
    mine, truth = (infer(pot, decoder, backend=b, n_threads=1) for b in ("numba", "reference"))
    np.testing.assert_array_equal(mine.samples, truth.samples)
    assert (mine.n_sweeps, mine.status) == (truth.n_sweeps, truth.status)
    return mine


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize(("length", "least_sweeps"), [(20, 7), (39, 13)])
def test_long_climbs_on_tall_images(length: int, least_sweeps: int, upward: bool) -> None:
    """Every other column is a corridor between walls of label 2; in it label 1 drives label 0 before it.

    A site deep within label 0 stays (two neighbours outweigh its unary), one at the front mostly gives way: so the
    front travels a site or two in a sweep, and climbs take more sweeps than go down the image one behind the other.
    """
    rng = np.random.default_rng(length)
    wall, corridor = np.arange(0, 15, 2), np.arange(1, 15, 2)
    unary = rng.normal(size=(40, 15, 3))
    unary[:, wall, :2] = unary[:, corridor, 2:] = -np.inf
    unary[:, corridor, 1] += 4.0
    unary[0, corridor, 0] = -np.inf
    start = np.full((40, 15), 2)
    start[:, corridor] = 1
    start[1 : 1 + length, corridor] = 0
    if upward:
        unary, start = unary[::-1], start[::-1]
    mine = both(Potentials.grid(unary, 20.0), LocPMAP(70, start=start, keep_samples=True))
    assert mine.n_sweeps >= least_sweeps
    assert mine.status == Status.COMPLETE


@pytest.mark.parametrize("n_samples", [120, 144])
def test_rounds_that_do_not_begin_at_a_word(n_samples: int) -> None:
    """Samples 56 to 119 and 96 to 143: the bits of a start then lie in three words, and in two calls of Philox."""
    rng = np.random.default_rng(n_samples)
    pot = Potentials.grid(rng.normal(size=(19, 33, 2)), 0.4)
    mine = both(pot, LocPMAP(n_samples, keep_samples=True))
    packed = infer(pot, LocPMAP(n_samples), backend="numba")
    np.testing.assert_array_equal(packed.probability, (mine.samples[..., None] == [0, 1]).mean(axis=0))
    np.testing.assert_array_equal(packed.probability, mine.probability)


def test_uniforms_that_leading_bits_leave_open() -> None:
    """Label 1 below 0x8000FFFF of 2^32: a leading half of 0x8000 is nearly always below, and does not show it."""
    p = 0x8000FFFF / 2**32
    unary = np.broadcast_to([0.0, np.log(p / (1 - p))], (64, 64, 2))
    both(Potentials.grid(unary, 0.0), LocPMAP(128, start="perturbed", keep_samples=True))


def test_two_hundred_labels() -> None:
    """Likely labels that differ by 128 only: they differ in the leading bit of a byte and nowhere else."""
    rng = np.random.default_rng(200)
    unary = rng.normal(size=(9, 14, 200))
    unary[..., [3, 131, 60, 188]] += 6.0
    both(Potentials.grid(unary, (2 * rng.random((9, 13)), 2 * rng.random((8, 14)))), LocPMAP(24, keep_samples=True))


@pytest.mark.parametrize("n_labels", [2, 3, 7])
@pytest.mark.parametrize("weight", [14.0, 61.0, 100.0, 250.0, 800.0])
def test_weights_beyond_single_precision(weight: float, n_labels: int) -> None:
    """Their exponentials vanish in single precision, the last one in double; unaries of the same size contend."""
    rng = np.random.default_rng(n_labels)
    for scale in (0.1, 1.0, 3.0):
        unary = rng.normal(size=(8, 21, n_labels), scale=scale * weight)
        unary[rng.random(unary.shape) < 0.1] = -np.inf
        unary[..., 0] = np.maximum(unary[..., 0], -weight)
        both(Potentials.grid(unary, weight), LocPMAP(16, keep_samples=True))


KERNELS = ("climb_sites", "climb_potts", "climb_bits", "votes", "bit_votes", "conditionals", "bit_conditionals")


def kind(argument: Any) -> Any:
    """A numba type without its memory layout and mutability."""
    if isinstance(argument, types.Array):
        return str(argument.dtype), argument.ndim
    members = getattr(argument, "types", None)  # of a tuple
    return str(argument) if members is None else tuple(kind(member) for member in members)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_odd_shapes_and_layouts_compile_nothing_new(n_labels: int) -> None:
    """A kernel takes seconds to compile, so what the arrays look like must not make it compile again."""

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
    numba = choose_backend("numba", "cpu")
    for name in KERNELS:
        compiled: Any = [tuple(kind(argument) for argument in s) for s in getattr(numba, name).signatures]
        assert len(set(compiled)) == len(compiled), f"{name} was compiled for arrays that differ in layout only"
