"""Labellings from max-product messages match the reference, label by label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.oracles.models import random_model
from tests.support.messages import states_after
from tests.support.odd_models import ODD, normal
from tests.triton.placing import place, place_model

from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.trees import breadth_first
from locpmap.kernels.triton.messages.decode_messages import decode_messages
from locpmap.potentials import Potentials

REFERENCE, TRITON = kernel_of("reference", "decode_messages"), decode_messages

CASES = ODD | {
    "several blocks": Potentials.grid(normal(13, 11, 5), (normal(13, 10), normal(12, 11))),
    "2000 labels": Potentials.grid(normal(1, 3, 2000), -0.7),
}


def check(pot: Potentials, order: np.ndarray | None = None) -> np.ndarray:
    """Compare Triton's labels with the reference and return them."""
    order = breadth_first(pot.model).order if order is None else order
    messages = states_after(pot, "reference", True, np.ones(len(pot.model.edges)), 0.0).messages.astype(pot.unary.dtype)
    expected = np.full((pot.n_images, pot.n_sites), 7)
    got = place(expected)
    REFERENCE(pot.model, order, messages, expected, 0, pot.n_images)
    TRITON(place_model(pot), place(order), place(messages), got)
    np.testing.assert_array_equal(got.cpu().numpy(), expected)
    return expected


@pytest.mark.parametrize("case", CASES)
def test_labels_match_the_reference(case: str) -> None:
    check(CASES[case])


@pytest.mark.parametrize("case", ["primes", "factored", "forbidden pairs"])
def test_single_precision_matches_the_reference(case: str) -> None:
    check(replace(CASES[case], unary=CASES[case].unary.astype(np.float32)))


@pytest.mark.parametrize("potts", [False, True])
def test_ties_go_to_the_smallest_label(potts: bool) -> None:
    """Scores of 0 and 1 tie everywhere."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        edges = random_model("tree", n_sites=25, seed=seed).edges
        shape = (24,) if potts else (24, 3, 3)
        check(Potentials.graph(rng.integers(2, size=(25, 3)), edges, rng.integers(-1, 2, shape).astype(float)))


@pytest.mark.parametrize("case", ["primes", "eight neighbours", "table per edge and image"])
def test_custom_and_partial_orders(case: str) -> None:
    pot = CASES[case]
    order = np.random.default_rng(0).permutation(pot.n_sites).astype(np.int32)
    check(pot, order)
    assert (check(pot, order[:5]) < 0).any()
