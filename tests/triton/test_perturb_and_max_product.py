"""Max-product on perturbed models matches the reference's labels and sweeps, sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.perturbation import PLAIN, Perturbation
from locpmap.kernels.spec import Span
from locpmap.kernels.trees import breadth_first, there_and_back
from locpmap.kernels.triton.messages.perturb_and_max_product import perturb_and_max_product
from locpmap.kernels.triton.messages.sweep_messages import DevicePlan
from locpmap.potentials import Potentials

REFERENCE, TRITON = kernel_of("reference", "perturb_and_max_product"), perturb_and_max_product

CASES = {case: pot for case, pot in ODD.items() if not case.startswith("far")} | {
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
}


def check(
    pot: Potentials, damping: float = 0.3, undamped: int = 2, sequential: bool = False, **part: int
) -> np.ndarray:
    """Compare labels and sweeps with the reference, and return the sweeps."""
    lo, hi = part.get("lo", 0), part.get("hi", pot.n_images)
    out = breadth_first(pot.model).order
    order = np.concatenate([out[::-1], out]) if sequential else pot.model.order
    limits = (damping, undamped, 1e-3, 7)
    noise = Perturbation(PLAIN, 1.0, 5, 6)
    labels = np.zeros((hi - lo, pot.n_sites, 3), np.int16)
    sweeps = REFERENCE(pot.model, noise, (order, out), limits, 3, lo, hi, 2, labels)
    model = place_model(pot)
    plan = DevicePlan(model.order, damping, 1e-3, undamped=undamped)
    if sequential:
        levels, ends = there_and_back(pot.structure)
        plan = plan._replace(order=place(levels), ends=ends)
    mine, got = TRITON(model, plan, noise, place(out), 7, 3, Span(lo, hi, 2, 3))
    np.testing.assert_array_equal(mine.cpu().numpy(), labels)
    np.testing.assert_array_equal(got.cpu().numpy(), sweeps)
    return sweeps


@pytest.mark.parametrize("case", list(CASES)[::2])
def test_labels_and_sweeps_match_the_reference(case: str) -> None:
    check(CASES[case])


@pytest.mark.parametrize("case", ["nx1", "primes"])
def test_sequential_schedule_matches_the_reference(case: str) -> None:
    check(CASES[case], sequential=True)


def test_undamped_run_matches_the_reference() -> None:
    assert check(CASES["primes"], undamped=50).max() <= 7


@pytest.mark.parametrize("case", ["batch", "table per edge and image"])
def test_subset_of_images_matches_the_reference(case: str) -> None:
    check(CASES[case], lo=1, hi=2)
