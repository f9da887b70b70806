"""Sweeps of messages in the linear domain match the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.message_plan import Domain, linear_domain
from locpmap.kernels.model import UNVISITED
from locpmap.kernels.trees import breadth_first
from locpmap.kernels.triton.messages.sweep_messages import DeviceMessages, DevicePlan, pass_messages
from locpmap.potentials import Potentials

REFERENCE = kernel_of("reference", "pass_linear")

CASES = {case: pot for case, pot in ODD.items() if linear_domain(pot.model)[1].all()} | {
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "600 labels": Potentials.grid(normal(1, 3, 600), -0.7),
}


def run_both(
    pot: Potentials, n_sweeps: int, damping: float, tolerance: float, order: Any = None, linear: Any = None
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return messages and marks of the reference and of Triton after ``n_sweeps`` calls.

    An order other than the model's is visited site by site.
    """
    linear = np.ones(pot.n_images, bool) if linear is None else linear
    model, dtype = place_model(pot), pot.unary.dtype
    couplings, _ = linear_domain(pot.model)
    weights = np.exp(np.subtract(pot.unary, pot.unary.max(axis=2, keepdims=True), dtype=np.float64))
    messages = np.ones((pot.n_images, 2 * len(pot.model.edges), pot.n_labels))
    dirty = np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)
    plan = DevicePlan(model.order, damping, tolerance, undamped=0)
    if order is not None:
        plan = plan._replace(order=place(order), ends=range(len(order) + 1))
    mine = DeviceMessages(place(messages.astype(dtype)), place(dirty), plan, False, place(linear))
    mine.domain = Domain(place(couplings.astype(dtype)), mine.linear, int(linear.sum()))
    mine.weights = place(weights.astype(dtype))
    order = pot.model.order if order is None else order
    for _ in range(n_sweeps):
        part = (0, pot.n_images, 0, len(order))
        REFERENCE(pot.model, order, messages, dirty, linear, weights, couplings, damping, tolerance, *part)
        pass_messages(model, mine, 1, linear=True)
    return (messages, dirty), (mine.messages.cpu().numpy(), mine.dirty.cpu().numpy())


def check(expected: tuple[np.ndarray, np.ndarray], got: tuple[np.ndarray, np.ndarray], rounding: float) -> None:
    """Compare messages with a relative tolerance, and marks exactly."""
    np.testing.assert_allclose(got[0], expected[0], rtol=rounding)
    np.testing.assert_array_equal(got[1], expected[1])


@pytest.mark.parametrize("damping", [0.0, 0.2])
@pytest.mark.parametrize("case", CASES)
def test_sweeps_match_the_reference(case: str, damping: float) -> None:
    pot = CASES[case]
    check(*run_both(pot, 2, damping, 1e-9), rounding=1e-12)


@pytest.mark.parametrize("case", ["primes", "table", "several programs"])
def test_single_precision_matches_the_reference(case: str) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    check(*run_both(pot, 2, 0.2, 1e-3), rounding=3e-6)


@pytest.mark.parametrize("case", ["batch", "table per edge and image"])
def test_log_domain_images_are_not_updated(case: str) -> None:
    pot = CASES[case]
    expected, got = run_both(pot, 2, 0.0, 1e-9, linear=np.arange(pot.n_images) > 0)
    check(expected, got, rounding=1e-12)
    assert (expected[0][0] == 1).all()
    assert (expected[1][0] == UNVISITED).all()


@pytest.mark.parametrize("case", ["nx1", "primes", "table"])
def test_custom_order_is_visited_site_by_site(case: str) -> None:
    """From leaves to roots and back: neighbours follow each other."""
    pot = CASES[case]
    outward = breadth_first(pot.model).order
    order = np.concatenate([outward[::-1], outward])
    check(*run_both(pot, 1, 0.0, 1e-9, order=order), rounding=1e-12)


def test_changes_within_the_tolerance_are_not_stored() -> None:
    pot = CASES["primes"]
    expected, got = run_both(pot, 4, 0.0, 0.05)
    check(expected, got, rounding=1e-12)
    assert not expected[1].all()


def test_first_visit_stores_messages_for_any_tolerance() -> None:
    pot = CASES["primes"]
    expected, got = run_both(pot, 2, 0.0, 1e3)
    check(expected, got, rounding=1e-12)
    assert (expected[0] != 1).any()


@pytest.mark.parametrize("weight", [-60.0, 60.0])
def test_messages_do_not_suffer_from_cancellation(weight: float) -> None:
    """Sites are nearly certain of one label, and neighbours must (or must not) share it."""
    chain = np.stack([np.arange(4), np.arange(1, 5)], axis=1)
    pot = Potentials.graph(normal(5, 3, scale=60.0), chain, weight)
    check(*run_both(pot, 2, 0.0, 1e-9), rounding=1e-12)
