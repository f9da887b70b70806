"""log Z and best scores of spanning forests match the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.messages import states_after
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.trees import spanning_forests
from locpmap.kernels.triton.messages.beliefs import forest_log_partitions
from locpmap.potentials import Potentials

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0

REFERENCE, TRITON = kernel_of("reference", "forest_log_partitions"), forest_log_partitions

CASES = ODD | {
    "several tiles": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "star": Potentials.graph(normal(90, 3), np.stack([np.zeros(89, int), np.arange(1, 90)], axis=1), normal(89, 3, 3)),
}


def evaluate_both(pot: Potentials, maximise: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the reference and of Triton."""
    forests, rho = spanning_forests(pot.model, 3)
    orders, parents = (np.stack(arrays) for arrays in zip(*forests, strict=True))
    messages = states_after(pot, "reference", maximise, rho, 0.0).messages
    expected, dtype = np.empty((pot.n_images, len(forests))), pot.unary.dtype
    REFERENCE(pot.model, messages, rho, orders, parents, expected, maximise, 0, pot.n_images, 0, len(forests))
    got = TRITON(place_model(pot), place(messages.astype(dtype)), place(rho.astype(dtype)), place(parents), maximise)
    return expected, got.cpu().numpy()


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_match_the_reference(case: str, maximise: bool) -> None:
    expected, got = evaluate_both(CASES[case], maximise)
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize(
    "case", ["primes", "factored", "forbidden pairs", pytest.param("several tiles", marks=pytest.mark.slow)]
)
def test_single_precision_matches_the_reference(case: str) -> None:
    pot = replace(CASES[case], unary=CASES[case].unary.astype(np.float32))
    np.testing.assert_allclose(*evaluate_both(pot), rtol=1e-5, atol=1e-5)
