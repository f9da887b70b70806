"""The edges' terms of the Bethe approximation match the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.messages import states_after
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.triton.messages.beliefs import bethe_edges
from locpmap.potentials import Potentials

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0

REFERENCE, TRITON = kernel_of("reference", "bethe_edges"), bethe_edges

CASES = ODD | {
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "600 labels": Potentials.grid(normal(1, 3, 600), -0.7),
}


def evaluate_both(pot: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return the terms of the reference and of Triton."""
    rho = np.ones(len(pot.model.edges))
    state = states_after(pot, "reference", False, rho, 0.0)
    messages, (beliefs, _) = state.messages, CpuKernels("reference").log_beliefs(pot.view, state)
    expected, dtype = np.empty((pot.n_images, pot.n_sites)), pot.unary.dtype
    REFERENCE(pot.model, messages, beliefs, expected, 0, pot.n_images, 0, pot.n_sites)
    got = TRITON(place_model(pot), place(messages.astype(dtype)), place(beliefs.astype(dtype)))
    return expected, got.cpu().numpy()


@pytest.mark.parametrize("case", CASES)
def test_terms_match_the_reference(case: str) -> None:
    pot = CASES[case]
    expected, got = evaluate_both(pot)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("case", ["primes", "factored", "forbidden pairs", "forbidden labels"])
def test_single_precision_matches_the_reference(case: str) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    expected, got = evaluate_both(pot)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
