"""Beliefs from messages match the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.messages import states_after
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.trees import spanning_forests
from locpmap.kernels.triton.messages.beliefs import log_beliefs
from locpmap.potentials import Potentials

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0

REFERENCE, TRITON = kernel_of("reference", "log_beliefs"), log_beliefs

CASES = ODD | {
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "600 labels": Potentials.grid(normal(1, 3, 600), -0.7),
}


def check(pot: Potentials, rounding: float, reweighted: bool = True) -> None:
    """Compare beliefs and normalisers of Triton with the reference."""
    ones = np.ones(len(pot.model.edges))
    rho = spanning_forests(pot.model, 3)[1] if reweighted else ones
    messages = states_after(pot, "reference", False, rho, 0.0).messages
    expected, dtype = (np.empty(pot.unary.shape), np.empty(pot.unary.shape[:2])), pot.unary.dtype
    REFERENCE(pot.model, messages, rho, *expected, 0, pot.n_images, 0, pot.n_sites)
    appearance = place(rho.astype(dtype)) if reweighted else None
    got = TRITON(place_model(pot), place(messages.astype(dtype)), appearance)
    for mine, right in zip(got, expected, strict=True):
        assert not np.isnan(right).any()
        np.testing.assert_allclose(mine.cpu().numpy(), right, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("reweighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_beliefs_match_the_reference(case: str, reweighted: bool) -> None:
    pot = CASES[case]
    check(pot, 1e-11, reweighted)


@pytest.mark.parametrize("case", ["primes", "forbidden pairs", "nothing allowed"])
def test_single_precision_matches_the_reference(case: str) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    check(pot, 3e-6)
