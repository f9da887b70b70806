"""Sweeps of messages in logarithms against the reference's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.test_messages import GRAPH, ODD, normal
from tests.triton.placing import place, place_model

from locpmap.inference.trees import breadth_first, spanning_forests
from locpmap.kernels import Backend
from locpmap.kernels.reference.messages import UNVISITED, send
from locpmap.potentials import Potentials

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns of log 0

REFERENCE, TRITON = Backend("reference").pass_messages, Backend("triton").pass_messages

CASES = {case: pot for case, pot in ODD.items() if pot.n_labels > 1} | {  # of one label, a message is only a constant
    "several programs": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "600 labels": Potentials.grid(normal(1, 3, 600), -0.7),
}


def start(pot: Potentials) -> tuple[np.ndarray, np.ndarray]:
    """Messages and marks before the first sweep."""
    messages = np.zeros((pot.n_images, 2 * len(pot.model.edges), pot.n_labels), pot.unary.dtype)
    return messages, np.full((pot.n_images, pot.n_sites), UNVISITED, np.uint8)


def both(
    pot: Potentials, parts: list[tuple[int, int, int, int]], *options: Any, order: Any = None, linear: Any = None
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Messages and marks of the reference and of Triton after visiting the given images and positions in turn."""
    linear = np.zeros(pot.n_images, bool) if linear is None else linear
    model, (rho, *how) = place_model(pot), options
    messages, dirty = start(pot)
    mine, my_dirty = place(messages), place(dirty)
    messages = messages.astype(np.float64)
    chosen = pot.model.order if order is None else order
    placed = model.order if order is None else place(order)
    for part in parts:
        REFERENCE(pot.model, chosen, messages, dirty, linear, rho, *how, *part)
        TRITON(model, placed, mine, my_dirty, place(linear), place(rho.astype(pot.unary.dtype)), *how, *part)
    return (messages, dirty), (mine.cpu().numpy(), my_dirty.cpu().numpy())


def check(expected: tuple[np.ndarray, np.ndarray], got: tuple[np.ndarray, np.ndarray], rounding: float) -> None:
    """The same messages up to rounding (of the largest), and the same marks."""
    scale = np.abs(expected[0][np.isfinite(expected[0])]).max(initial=1.0)
    np.testing.assert_allclose(got[0], expected[0], rtol=rounding, atol=rounding * scale)
    np.testing.assert_array_equal(got[1], expected[1])


def whole(pot: Potentials) -> tuple[int, int, int, int]:
    return 0, pot.n_images, 0, pot.n_sites


@pytest.mark.parametrize("case", CASES)
def test_sweeps(case: str) -> None:
    pot = CASES[case]
    check(*both(pot, [whole(pot)] * 2, spanning_forests(pot.model, 3)[1], False, 0.3, 1e-9), rounding=1e-12)


@pytest.mark.parametrize(("maximise", "damping"), [(False, 0.0), (True, 0.0), (True, 0.3)])
@pytest.mark.parametrize("case", ["1xn", "primes", "forbidden labels", "forbidden pairs", "far apart"])
def test_maximising_and_damping(case: str, maximise: bool, damping: float) -> None:
    pot = CASES[case]
    check(*both(pot, [whole(pot)] * 2, np.ones(len(pot.model.edges)), maximise, damping, 1e-9), rounding=1e-12)


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("case", ["primes", "forbidden pairs"])
def test_single_precision(case: str, maximise: bool) -> None:
    pot = CASES[case]
    pot = replace(pot, unary=pot.unary.astype(np.float32))
    check(*both(pot, [whole(pot)] * 2, np.ones(len(pot.model.edges)), maximise, 0.3, 1e-3), rounding=2e-6)


@pytest.mark.parametrize("case", ["batch", "table per edge and image"])
def test_parts_of_the_images_and_of_the_order(case: str) -> None:
    """Positions that begin and end inside a class, some images, and one that is not for this kernel."""
    pot = CASES[case]
    parts = [(0, 2, 1, pot.n_sites - 1), (1, pot.n_images, 2, 3), (0, 1, 0, 2), (1, 1, 0, 2), (0, 2, 3, 3)]
    linear = np.arange(pot.n_images) == 0
    expected, got = both(pot, parts, np.ones(len(pot.model.edges)), False, 0.0, 0.0, linear=linear)
    check(expected, got, rounding=1e-12)
    assert not expected[0][0].any()
    assert (expected[1] == UNVISITED).any()


@pytest.mark.parametrize("case", ["nx1", "primes", "table"])
def test_any_other_order_is_visited_one_by_one(case: str) -> None:
    """From leaves to roots and back, where neighbours follow each other."""
    pot = CASES[case]
    outward = breadth_first(pot.model).order
    order = np.concatenate([outward[::-1], outward])
    options = (np.ones(len(pot.model.edges)), False, 0.0, 1e-9)
    check(*both(pot, [(0, pot.n_images, 1, len(order))], *options, order=order), rounding=1e-12)


def test_a_tolerance_keeps_messages_and_marks_as_they_are() -> None:
    pot = Potentials.graph(normal(2, 8, 3), GRAPH, normal(7, scale=0.3))
    expected, got = both(pot, [whole(pot)] * 4, np.ones(7), False, 0.0, 0.05)
    check(expected, got, rounding=1e-12)
    assert not expected[1].all()


def test_a_first_visit_is_heard_whatever_the_tolerance() -> None:
    pot = CASES["primes"]
    expected, got = both(pot, [whole(pot)] * 2, np.ones(len(pot.model.edges)), False, 0.0, 1e3)
    check(expected, got, rounding=1e-12)
    assert expected[0].any()


@pytest.mark.parametrize("weight", [-1e6, -40.0, -1e-9, 0.0, 1e-9, 39.0, 41.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_potts_messages_lose_nothing(weight: float, spread: float) -> None:
    unary = np.array([[0.0, -0.3, -0.7, -1.0], [0.1, 0.0, 0.2, 0.3]]) * spread
    pot = Potentials.graph(unary, [[0, 1]], weight)
    for maximise in (False, True):
        _, (messages, _) = both(pot, [whole(pot)], np.ones(1), maximise, 0.0, 0.0)
        expected, _ = send(unary[0], weight * np.eye(4), maximise)
        rounding = 4 * np.finfo(float).eps * (1 + spread + abs(weight))
        np.testing.assert_allclose(messages[0, 1], expected, rtol=1e-13, atol=rounding)
