"""What a result says about itself: forbidden labels, entropy, its line of text, and the way to another process."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import random_model

import locpmap as lp
from locpmap.arrays import MAX_COPY
from locpmap.inference import DECODERS, infer
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.potentials import Potentials
from locpmap.result import Ending, Result

APART = np.array([[0.0, -np.inf], [-np.inf, 0.0]])  # neighbours must agree


def noisy(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(height, width, 2))


# forbidden pairs


def test_labels_that_break_a_forbidden_pair_are_no_success() -> None:
    pot = Potentials.grid(np.stack([noisy(2, 4), noisy(2, 4)]), APART)
    start = [[[0, 0, 1, 1], [0, 0, 1, 1]], np.ones((2, 4), int)]  # one change at a time does not mend the first
    result = infer(pot, "icm", start=np.array(start), backend="reference")
    assert np.isneginf(result.score).tolist() == [True, False]
    assert result.status is lp.result.Status.FORBIDDEN
    assert not result.converged
    assert "forbids" in repr(result)


def test_labels_that_keep_to_the_forbidden_pairs_are() -> None:
    pot = Potentials.grid(noisy(3, 3), APART)
    result = infer(pot, "exact", backend="reference")
    assert np.isfinite(result.score)
    assert result.status is lp.result.Status.EXACT
    assert result.converged


@pytest.mark.parametrize("pairwise", [1.0, np.zeros((2, 2))])
def test_models_that_forbid_no_pairs_pay_nothing(pairwise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("scores were computed")

    monkeypatch.setattr(CpuKernels, "score", refuse)
    assert infer(Potentials.grid(noisy(3, 3), pairwise), "icm", backend="reference").converged
    with pytest.raises(AssertionError, match="scores were computed"):
        infer(Potentials.grid(noisy(3, 3), APART), "icm", backend="reference")


# numbers


def test_entropy_is_never_negative_not_even_as_zero() -> None:
    unary = noisy(3, 3)
    unary[0, 0, 1] = -np.inf
    entropy = infer(Potentials.grid(unary, 1.0), "exact", backend="reference").entropy
    assert entropy[0, 0] == 0
    assert not np.signbit(entropy).any()
    assert (entropy.ravel()[1:] > 0).all()


def test_one_line_of_text() -> None:
    pot = Potentials.grid(np.zeros((5, 3, 4, 2)), 1.0)
    assert repr(pot) == "<Potentials: 5 images, grid 3×4, 2 labels, Potts weights, float64>"
    assert repr(Potentials.graph(np.zeros((3, 2)), [[0, 1]], np.eye(2))) == (
        "<Potentials: graph of 3 sites, 1 edges, 2 labels, tables, float64>"
    )
    result = infer(pot, "icm", backend="reference")
    assert repr(result).startswith("<Result of icm: labels (5, 3, 4), converged, ")
    assert "\n" not in repr(infer(pot, "locpmap", n_samples=2, backend="reference"))


# whose memory it is


def test_small_inputs_may_change_afterwards() -> None:
    unary, tables, mask = noisy(3, 3), np.eye(2), np.zeros((3, 3), bool)
    result = infer(Potentials.grid(unary, tables, mask=mask), "exact", backend="reference")
    expected = Potentials.grid(unary.copy(), tables.copy()).score(result.labels)
    unary[:], tables[:], mask[:] = 100, 100, True
    assert result.score == expected


def test_large_inputs_are_shared() -> None:
    small, large = np.zeros((1, MAX_COPY // 16, 2)), np.zeros((1, MAX_COPY // 16 + 1, 2))
    assert not np.shares_memory(Potentials.grid(small, 1.0).unary, small)
    assert np.shares_memory(Potentials.grid(large, 1.0).unary, large)


# other processes


def models() -> dict[str, Potentials]:
    unary, edges, tables = random_model("cycle", "random", 6, 3, seed=1)
    mask = np.zeros((3, 4), bool)
    mask[1, 1] = True
    return {
        "grid": Potentials.grid(noisy(3, 4), 1.0, mask=mask),
        "batch": Potentials.grid(np.stack([noisy(3, 3), -noisy(3, 3)]), (0.5, 1.0)),
        "graph": Potentials.graph(unary, edges, tables),
    }


def arrays_of(pot: Potentials) -> list[np.ndarray]:
    term = pot.pairwise
    found = [pot.unary, pot.masked, term.features, term.tables, *(term.weights or ())]
    found += [] if isinstance(pot.structure, lp.graphs.Grid) else [pot.structure.edges()]
    return [array for array in found if array is not None]


@pytest.mark.parametrize("name", ["grid", "batch", "graph"])
def test_potentials_travel(name: str) -> None:
    pot = models()[name]
    assert pot.model.unary is pot.unary  # built, and left behind
    sent = pickle.dumps(pot)
    there = pickle.loads(sent)
    assert "model" not in there.__dict__
    assert repr(there) == repr(pot)
    assert len(arrays_of(there)) == len(arrays_of(pot))
    for ours, theirs in zip(arrays_of(pot), arrays_of(there), strict=True):
        assert np.array_equal(ours, theirs)
        assert not theirs.flags.writeable
    first, second = (infer(p, "locpmap", n_samples=5, seed=3, backend="reference") for p in (pot, there))
    assert np.array_equal(first.probability, second.probability)


@pytest.mark.parametrize("method", sorted(DECODERS))
def test_results_travel(method: str) -> None:
    result = infer(Potentials.grid(noisy(2, 3), 0.5), method, backend="reference")
    for there in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert repr(there) == repr(result)
        assert there.status is result.status
        assert np.array_equal(there.labels, result.labels)
        assert there.score == result.score


def test_results_whose_ending_is_yet_to_be_asked_for_travel() -> None:
    asked = []

    def ending() -> Ending:  # as on a GPU, where asking waits
        asked.append(1)
        return Ending(lp.result.Status.COMPLETE, 0.5, 3.0)

    made = infer(Potentials.grid(noisy(2, 3), 0.5), "locpmap", n_samples=4, backend="reference")
    late = Result(made.labels, made.probability, "locpmap", "triton", "cuda", ending=ending, potentials=made.potentials)
    assert not asked
    again = pickle.loads(pickle.dumps(late))
    assert (again.status, again.seconds, again.n_sweeps) == (lp.result.Status.COMPLETE, 0.5, 3.0)
    assert late.converged
    assert len(asked) == 1


def test_tensors_travel() -> None:
    torch = pytest.importorskip("torch")
    pot = Potentials.grid(torch.zeros((2, 3, 2)), 1.0)
    there = pickle.loads(pickle.dumps(infer(pot, "icm", backend="reference")))
    assert isinstance(there.labels, torch.Tensor)
    assert isinstance(there.potentials.local_scores(there.labels), torch.Tensor)
