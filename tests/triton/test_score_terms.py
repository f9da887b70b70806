"""Scores of labellings against the reference's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.test_messages import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.twins import twin
from locpmap.kernels.triton.count.score_terms import score_terms
from locpmap.potentials import Potentials

REFERENCE, TRITON = twin("reference", "score_terms"), score_terms

CASES = ODD | {"several programs": Potentials.grid(normal(23, 31, 5), (normal(23, 30), normal(22, 31)))}


def both(pot: Potentials, part: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The terms of the reference and of Triton for random labels; 7 where nothing was filled in."""
    shape = (pot.n_images, pot.n_sites)
    labels = np.random.default_rng(0).integers(pot.n_labels, size=shape)
    expected = np.full(shape, 7.0)
    got = place(expected)
    REFERENCE(pot.model, labels, expected, *part)
    TRITON(place_model(pot), place(labels), got, *part)
    return expected, got.cpu().numpy()


@pytest.mark.parametrize("case", CASES)
def test_terms(case: str) -> None:
    pot = CASES[case]
    np.testing.assert_allclose(*both(pot, (0, pot.n_images, 0, pot.n_sites)), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("case", ["primes", "factored", "forbidden pairs"])
def test_single_precision(case: str) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    np.testing.assert_allclose(*both(pot, (0, pot.n_images, 0, pot.n_sites)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("part", [(1, 2, 0, 6), (0, 3, 2, 5), (0, 0, 0, 6), (0, 3, 4, 4)])
def test_parts_of_the_images_and_of_the_order(part: tuple[int, int, int, int]) -> None:
    np.testing.assert_allclose(*both(CASES["batch"], part), rtol=1e-13)
