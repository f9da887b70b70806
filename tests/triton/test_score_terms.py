"""Scores of labellings match the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.triton.climb.mean_field import score_terms
from locpmap.potentials import Potentials

REFERENCE, TRITON = kernel_of("reference", "score_terms"), score_terms

CASES = ODD | {"several programs": Potentials.grid(normal(23, 31, 5), (normal(23, 30), normal(22, 31)))}


def evaluate_both(pot: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return the terms of the reference and of Triton for random labels."""
    shape = (pot.n_images, pot.n_sites)
    labels, expected = np.random.default_rng(0).integers(pot.n_labels, size=shape), np.empty(shape)
    REFERENCE(pot.model, labels, expected, 0, pot.n_images, 0, pot.n_sites)
    return expected, TRITON(place_model(pot), place(labels)).cpu().numpy()


@pytest.mark.parametrize("case", CASES)
def test_terms_match_the_reference(case: str) -> None:
    pot = CASES[case]
    np.testing.assert_allclose(*evaluate_both(pot), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("case", ["primes", "factored", "forbidden pairs"])
def test_single_precision_matches_the_reference(case: str) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    np.testing.assert_allclose(*evaluate_both(pot), rtol=1e-6, atol=1e-6)
