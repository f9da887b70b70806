"""Sweeps of messages in the log domain match the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.odd_models import GRAPH, ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.model import UNVISITED
from locpmap.kernels.reference.messages import send
from locpmap.kernels.trees import breadth_first, spanning_forests
from locpmap.kernels.triton.messages.sweep_messages import DeviceMessages, DevicePlan, pass_messages
from locpmap.potentials import Potentials

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0

REFERENCE, TRITON = kernel_of("reference", "pass_messages"), pass_messages

CASES = {case: pot for case, pot in ODD.items() if pot.n_labels > 1} | {  # with one label, messages are constants
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "600 labels": Potentials.grid(normal(1, 3, 600), -0.7),
}


def initial_state(pot: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Return messages and marks before the first sweep."""
    messages = np.zeros((pot.n_images, 2 * len(pot.model.edges), pot.n_labels), pot.unary.dtype)
    return messages, np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)


def run_both(
    pot: Potentials,
    n_sweeps: int,
    rho: Any,
    maximise: bool,
    damping: float,
    tolerance: float,
    order: Any = None,
    linear: Any = None,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return messages and marks of the reference and of Triton after ``n_sweeps`` calls.

    An order other than the model's is visited site by site.
    """
    linear = np.zeros(pot.n_images, bool) if linear is None else linear
    model, (messages, dirty) = place_model(pot), initial_state(pot)
    plan = DevicePlan(model.order, damping, tolerance, undamped=0)
    if order is not None:
        plan = plan._replace(order=place(order), ends=range(len(order) + 1))
    share = place(rho.astype(pot.unary.dtype))
    mine = DeviceMessages(place(messages), place(dirty), plan, maximise, place(linear), share)
    messages = messages.astype(np.float64)
    order = pot.model.order if order is None else order
    for _ in range(n_sweeps):
        part = (0, pot.n_images, 0, len(order))
        REFERENCE(pot.model, order, messages, dirty, linear, rho, maximise, damping, tolerance, *part)
        TRITON(model, mine, 1)
    return (messages, dirty), on_host(mine)


def on_host(messages: DeviceMessages) -> tuple[np.ndarray, np.ndarray]:
    """Return messages and marks on the host."""
    return messages.messages.cpu().numpy(), messages.dirty.cpu().numpy()


def check(expected: tuple[np.ndarray, np.ndarray], got: tuple[np.ndarray, np.ndarray], rounding: float) -> None:
    """Compare messages up to rounding, relative to the largest, and marks exactly."""
    scale = np.abs(expected[0][np.isfinite(expected[0])]).max(initial=1.0)
    np.testing.assert_allclose(got[0], expected[0], rtol=rounding, atol=rounding * scale)
    np.testing.assert_array_equal(got[1], expected[1])


def all_sites(pot: Potentials) -> tuple[int, int, int, int]:
    return 0, pot.n_images, 0, pot.n_sites


@pytest.mark.parametrize("case", CASES)
def test_sweeps_match_the_reference(case: str) -> None:
    pot = CASES[case]
    check(*run_both(pot, 2, spanning_forests(pot.model, 3)[1], False, 0.3, 1e-9), rounding=1e-12)


@pytest.mark.parametrize(("maximise", "damping"), [(False, 0.0), (True, 0.0), (True, 0.3)])
@pytest.mark.parametrize("case", ["1xn", "primes", "forbidden labels", "forbidden pairs", "far apart"])
def test_max_product_and_damping_match_the_reference(case: str, maximise: bool, damping: float) -> None:
    pot = CASES[case]
    check(*run_both(pot, 2, np.ones(len(pot.model.edges)), maximise, damping, 1e-9), rounding=1e-12)


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("case", ["primes", "forbidden pairs"])
def test_single_precision_matches_the_reference(case: str, maximise: bool) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    check(*run_both(pot, 2, np.ones(len(pot.model.edges)), maximise, 0.3, 1e-3), rounding=2e-6)


@pytest.mark.parametrize("case", ["batch", "table per edge and image"])
def test_linear_domain_images_are_not_updated(case: str) -> None:
    pot = CASES[case]
    linear = np.arange(pot.n_images) == 0
    expected, got = run_both(pot, 2, np.ones(len(pot.model.edges)), False, 0.0, 0.0, linear=linear)
    check(expected, got, rounding=1e-12)
    assert not expected[0][0].any()
    assert (expected[1][0] == UNVISITED).all()


@pytest.mark.parametrize("case", ["nx1", "primes", "table"])
def test_custom_order_is_visited_site_by_site(case: str) -> None:
    """From leaves to roots and back: neighbours follow each other."""
    pot = CASES[case]
    outward = breadth_first(pot.model).order
    order = np.concatenate([outward[::-1], outward])
    check(*run_both(pot, 1, np.ones(len(pot.model.edges)), False, 0.0, 1e-9, order=order), rounding=1e-12)


@pytest.mark.parametrize(
    "case", ["1x1", "primes", pytest.param("batch", marks=pytest.mark.slow), "no edges", "forbidden labels"]
)
def test_launch_ends_when_no_site_is_marked(case: str) -> None:
    """The launch performs as many sweeps as the reference, and at most the requested number."""
    pot = CASES[case]
    messages, dirty = initial_state(pot)
    rho, nowhere, how = np.ones(len(pot.model.edges)), np.zeros(pot.n_images, bool), (False, 0.2, 1e-3)
    needed = 0
    while dirty.any():
        REFERENCE(pot.model, pot.model.order, messages, dirty, nowhere, rho, *how, *all_sites(pot))
        needed += 1
    for requested in (needed, needed + 5):
        model, (first, marks) = place_model(pot), (place(array) for array in initial_state(pot))
        mine = DeviceMessages(first, marks, DevicePlan(model.order, *how[1:], undamped=0), how[0], place(nowhere))
        assert TRITON(model, mine, requested).tolist() == [1] * needed + [0] * (requested - needed + 1)
        check((messages, dirty), on_host(mine), rounding=1e-12)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (1, 7), (6, 1), (2, 2), (3, 5), (4, 7), (5, 6)], ids=str)
@pytest.mark.parametrize("parity", [0, 1])
def test_potts_grids_do_not_read_neighbour_lists(shape: tuple[int, int], parity: int) -> None:
    """Neighbour lists overwritten with zeros do not change the result."""
    height, width = shape
    weights = normal(height, width - 1), normal(height - 1, width)
    pot = Potentials.grid(normal(2, height, width, 3), weights, window=(2, 3 + parity, 20))
    messages, dirty = initial_state(pot)
    rho, nowhere, how = spanning_forests(pot.model, 3)[1], np.zeros(2, bool), (False, 0.2, 1e-9)
    for _ in range(2):
        REFERENCE(pot.model, pot.model.order, messages, dirty, nowhere, rho, *how, *all_sites(pot))
    model, (first, marks) = place_model(pot), (place(array) for array in initial_state(pot))
    poison = {name: getattr(model, name) * 0 for name in ("order", "indptr", "neighbour", "end", "reverse")}
    model = model._replace(**poison)
    plan = DevicePlan(model.order, *how[1:], grid=(*shape, (2 + 3 + parity) % 2), undamped=0)
    mine = DeviceMessages(first, marks, plan, how[0], place(nowhere), place(rho))
    TRITON(model, mine, 2)
    check((messages, dirty), on_host(mine), rounding=1e-12)


@pytest.mark.slow
def test_copies_share_the_pairwise_terms_of_their_image() -> None:
    pot = CASES["table per edge and image"]
    model, n_copies = place_model(pot), 3
    unary = np.random.default_rng(0).normal(size=(n_copies * pot.n_images, pot.n_sites, pot.n_labels))
    messages, dirty = initial_state(replace(pot, unary=unary))
    nowhere, ones = np.zeros(len(unary), bool), np.ones(len(pot.model.edges))
    last, plan = place(np.zeros(len(unary), np.int32)), DevicePlan(model.order, 0.0, 1e-9)
    mine = DeviceMessages(place(messages), place(dirty), plan, False, place(nowhere), made=7)
    TRITON(model._replace(unary=place(unary)), mine, 2, copies=n_copies, last=last)
    for n in range(len(unary)):
        image = n // n_copies
        alone = pot.model._replace(unary=unary[n:], features=pot.model.features, tables=pot.model.tables[image:])
        for _ in range(2):
            state = (messages[n:], dirty[n:], nowhere, ones)
            REFERENCE(alone, alone.order, *state, False, 0.0, 1e-9, 0, 1, 0, pot.n_sites)
    check((messages, dirty), on_host(mine), rounding=1e-12)
    assert last.tolist() == [9] * len(unary)


def test_changes_within_the_tolerance_are_not_stored() -> None:
    pot = Potentials.graph(normal(2, 8, 3), GRAPH, normal(7, scale=0.3))
    expected, got = run_both(pot, 4, np.ones(7), False, 0.0, 0.05)
    check(expected, got, rounding=1e-12)
    assert not expected[1].all()


def test_first_visit_stores_messages_for_any_tolerance() -> None:
    pot = CASES["primes"]
    expected, got = run_both(pot, 2, np.ones(len(pot.model.edges)), False, 0.0, 1e3)
    check(expected, got, rounding=1e-12)
    assert expected[0].any()


@pytest.mark.parametrize("weight", [-1e6, -40.0, -1e-9, 0.0, 1e-9, 39.0, 41.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_potts_messages_are_accurate_to_rounding(weight: float, spread: float) -> None:
    unary = np.array([[0.0, -0.3, -0.7, -1.0], [0.1, 0.0, 0.2, 0.3]]) * spread
    pot = Potentials.graph(unary, [[0, 1]], weight)
    for maximise in (False, True):
        _, (messages, _) = run_both(pot, 1, np.ones(1), maximise, 0.0, 0.0)
        expected, _ = send(unary[0], weight * np.eye(4), maximise)
        rounding = 4 * np.finfo(float).eps * (1 + spread + abs(weight))
        np.testing.assert_allclose(messages[0, 1], expected, rtol=1e-13, atol=rounding)
