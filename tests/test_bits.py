"""Two labels on a 4-connected grid: samples packed into machine words, compared with unpacked climbs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles.models import random_unary

from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.cpu import sampling
from locpmap.potentials import Potentials
from locpmap.result import Result

SHAPES = [(1, 1), (1, 2), (1, 17), (17, 1), (2, 2), (4, 4), (5, 7), (13, 11), (3, 31)]
N_SAMPLES = [1, 63, 64, 65, 130]
WEIGHTS = [
    "one for all",
    "equal",
    "equal per image",
    "positive",
    "either sign",
    "one shared direction",
    "strong",
    "almost equal",
]


def edge_weights(kind: str, n_images: int, shape: tuple[int, int], rng: np.random.Generator) -> Any:
    """Return one weight, or weights to the right and down, per image or shared by all images."""
    if kind == "one for all":
        return 0.8
    height, width = shape
    right, down = rng.normal(size=(n_images, height, width - 1)), rng.normal(size=(n_images, height - 1, width))
    if kind == "equal":
        return np.full_like(right, 0.8), np.full_like(down, 0.8)
    if kind == "equal per image":  # the last image has a different weight
        right[:], down[:] = 0.6, 0.6
        right[-1], down[-1] = -0.9, -0.9
    elif kind == "positive":
        right, down = np.abs(right), np.abs(down)
    elif kind == "one shared direction":
        right = right[0]
    elif kind == "strong":  # exponentials underflow or overflow
        right, down = 200 * right, 400 * down
    elif kind == "almost equal":  # equal on all edges but the last
        right[:], down[:] = 0.7, 0.7
        (down if down.size else right).reshape(-1)[-1:] = -0.7
    return right, down


def infer_unpacked(pot: Potentials, decoder: LocPMAP, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Result:
    """Run the decoder with the kernel that does not pack samples."""
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "MAX_BIT_SITES", -1)
        return infer(pot, decoder, backend="numba", **options)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_climbs_equal_unpacked_ones(shape: tuple[int, int], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases vary the number of samples, start, precision, window, temperature and sweep limit."""
    first = 11 * SHAPES.index(shape) + WEIGHTS.index(kind)
    for case in range(first, first + 3):
        rng = np.random.default_rng(case)
        unary = random_unary((3, *shape), 2, 0.2 if case % 2 else 0.0, rng)
        if kind == "strong":
            unary *= 300
        dtype = (np.float32, np.float64)[case // 2 % 2]
        unary = unary.astype(dtype)
        weights, window = edge_weights(kind, 3, shape, rng), (3, 2, 40) if case % 3 else None
        pot = Potentials.grid(unary, weights, window=window)
        # In single precision the unpacked kernel also rounds the noise; the packed kernel does not.
        exact = Potentials.grid(unary.astype(np.float64), weights, window=window)
        how: dict[str, Any] = {
            "n_samples": N_SAMPLES[case % 5],
            "start": ("random", "perturbed", unary.argmax(axis=3))[case // 3 % 3],
            "temperature": (1.0, 0.5, 1.0, 2.5)[case % 4],
            "max_sweeps": (100, 1, 100)[case % 3],
        }
        run: dict[str, Any] = {"seed": case, "first_image": case % 4}
        found = infer(pot, LocPMAP(keep_samples=True, **how), backend="numba", **run)
        unpacked = infer_unpacked(exact, LocPMAP(keep_samples=True, **how), monkeypatch, **run)
        np.testing.assert_array_equal(found.samples, unpacked.samples)
        assert (found.n_sweeps, found.status, found.noise) == (unpacked.n_sweeps, unpacked.status, "lazy")
        for probability in ("votes", "conditional"):  # packed, because samples are not stored
            packed = infer(pot, LocPMAP(probability=probability, **how), backend="numba", **run)
            plain = infer_unpacked(exact, LocPMAP(probability=probability, **how), monkeypatch, **run)
            # Conditionals are products of exponentials or exponentials of sums, rounded to units of 2^-40.
            unit, rounding = (0.0, 0.0) if probability == "votes" else (2.0**-40, float(np.finfo(dtype).eps))
            expected = plain.probability.astype(dtype)
            np.testing.assert_allclose(packed.probability, expected, rtol=rounding, atol=unit)
            assert packed.n_sweeps == unpacked.n_sweeps


@pytest.mark.parametrize("kind", ["one for all", "either sign"])
@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_packed_probabilities_equal_the_reference(kind: str, probability: str) -> None:
    """Each of the 70 summed conditionals may differ by one unit of 2^-40."""
    rng = np.random.default_rng(1)
    unary = random_unary((2, 3, 5), 2, 0.2, rng)
    pot = Potentials.grid(unary, edge_weights(kind, 2, (3, 5), rng))
    decoder = LocPMAP(70, probability=probability)
    found, reference = (infer(pot, decoder, backend=b).probability for b in ("numba", "reference"))
    np.testing.assert_allclose(found, reference, rtol=0, atol=2.0**-40)


def test_batch_equals_single_images() -> None:
    """The kernel has separate paths for equal and unequal weights; neither may affect the next image."""
    rng = np.random.default_rng(2)
    unary = rng.normal(size=(5, 6, 7, 2))
    right, down = edge_weights("either sign", 5, (6, 7), rng)
    right[[0, 3]], down[[0, 3]] = 0.5, 0.5
    decoder = LocPMAP(70, keep_samples=True)
    whole = infer(Potentials.grid(unary, (right, down)), decoder, backend="numba", n_threads=1)
    for n in range(5):
        alone = Potentials.grid(unary[n], (right[n], down[n]))
        np.testing.assert_array_equal(
            whole.samples[:, n], infer(alone, decoder, backend="numba", first_image=n).samples
        )


def test_masked_sites_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask replaces the single weight by weights per edge."""
    rng = np.random.default_rng(3)
    pot = Potentials.grid(rng.normal(size=(2, 9, 8, 2)), 0.8, mask=rng.random((2, 9, 8)) < 0.3)
    assert sampling.takes_bits(pot.view)
    decoder = LocPMAP(66, keep_samples=True)
    found, unpacked = infer(pot, decoder, backend="numba"), infer_unpacked(pot, decoder, monkeypatch)
    np.testing.assert_array_equal(found.samples, unpacked.samples)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("start", ["given", "perturbed"])
def test_uniforms_undecided_by_their_leading_bits(start: str, equal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label 1 needs a uniform below 0x8000FFFF / 2^32; its leading half 0x8000 alone does not decide that.

    About 18 of the 1.2 million uniforms have that half.
    """
    p = 0x8000FFFF / 2**32
    unary = np.broadcast_to([0.0, np.log(p / (1 - p))], (96, 96, 2))
    right, down = np.zeros((96, 95)), np.zeros((95, 96))
    right[0, 0] = 0.0 if equal else 1e-15
    labels: Any = np.zeros((96, 96), int) if start == "given" else start
    pot, decoder = Potentials.grid(unary, (right, down)), LocPMAP(128, start=labels, keep_samples=True)
    found, unpacked = infer(pot, decoder, backend="numba"), infer_unpacked(pot, decoder, monkeypatch)
    np.testing.assert_array_equal(found.samples, unpacked.samples)


def test_models_that_use_packed_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    unary = np.zeros((4, 5, 2))
    weights = (np.ones((4, 4)), -np.ones((3, 5)))
    assert sampling.takes_bits(Potentials.grid(unary, weights).view)
    assert sampling.takes_bits(Potentials.grid(unary, -1.0).view)
    assert not sampling.takes_bits(Potentials.grid(unary, np.eye(2)).view)
    assert not sampling.takes_bits(Potentials.grid(unary, 1.0, connectivity=8).view)
    assert not sampling.takes_bits(Potentials.grid(np.zeros((4, 5, 3)), weights).view)
    assert not sampling.takes_bits(Potentials.graph(np.zeros((3, 2)), [[0, 1], [1, 2]], 1.0).view)
    monkeypatch.setattr(sampling, "MAX_BIT_SITES", 19)
    assert not sampling.takes_bits(Potentials.grid(unary, weights).view)
