"""Results: forbidden labels, entropy, repr, memory and pickling."""

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

MUST_AGREE = np.array([[0.0, -np.inf], [-np.inf, 0.0]])  # neighbours must agree


def noisy(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(height, width, 2))


# forbidden pairs


def test_forbidden_pair_in_the_labels_is_reported() -> None:
    pot = Potentials.grid(np.stack([noisy(2, 4), noisy(2, 4)]), MUST_AGREE)
    start = [[[0, 0, 1, 1], [0, 0, 1, 1]], np.ones((2, 4), int)]  # no single change makes the first valid
    result = infer(pot, "icm", start=np.array(start), backend="reference")
    assert np.isneginf(result.score).tolist() == [True, False]
    assert result.status is lp.result.Status.FORBIDDEN
    assert not result.converged
    assert "forbids" in repr(result)


def test_labels_without_forbidden_pairs_are_reported() -> None:
    pot = Potentials.grid(noisy(3, 3), MUST_AGREE)
    result = infer(pot, "exact", backend="reference")
    assert np.isfinite(result.score)
    assert result.status is lp.result.Status.EXACT
    assert result.converged


@pytest.mark.parametrize("pairwise", [1.0, np.zeros((2, 2))])
def test_scores_are_not_computed_without_forbidden_pairs(pairwise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("scores were computed")

    monkeypatch.setattr(CpuKernels, "score", fail)
    assert infer(Potentials.grid(noisy(3, 3), pairwise), "icm", backend="reference").converged
    with pytest.raises(AssertionError, match="scores were computed"):
        infer(Potentials.grid(noisy(3, 3), MUST_AGREE), "icm", backend="reference")


# numbers


def test_entropy_is_never_negative_nor_negative_zero() -> None:
    unary = noisy(3, 3)
    unary[0, 0, 1] = -np.inf
    entropy = infer(Potentials.grid(unary, 1.0), "exact", backend="reference").entropy
    assert entropy[0, 0] == 0
    assert not np.signbit(entropy).any()
    assert (entropy.ravel()[1:] > 0).all()


def test_repr_is_one_line() -> None:
    pot = Potentials.grid(np.zeros((5, 3, 4, 2)), 1.0)
    assert repr(pot) == "<Potentials: 5 images, grid 3×4, 2 labels, Potts weights, float64>"
    assert repr(Potentials.graph(np.zeros((3, 2)), [[0, 1]], np.eye(2))) == (
        "<Potentials: graph of 3 sites, 1 edges, 2 labels, tables, float64>"
    )
    result = infer(pot, "icm", backend="reference")
    assert repr(result).startswith("<Result of icm: labels (5, 3, 4), converged, ")
    assert "\n" not in repr(infer(pot, "locpmap", n_samples=2, backend="reference"))


# memory shared with the input


def test_small_inputs_are_copied() -> None:
    unary, tables, mask = noisy(3, 3), np.eye(2), np.zeros((3, 3), bool)
    result = infer(Potentials.grid(unary, tables, mask=mask), "exact", backend="reference")
    expected = Potentials.grid(unary.copy(), tables.copy()).score(result.labels)
    unary[:], tables[:], mask[:] = 100, 100, True
    assert result.score == expected


def test_large_inputs_are_shared() -> None:
    small, large = np.zeros((1, MAX_COPY // 16, 2)), np.zeros((1, MAX_COPY // 16 + 1, 2))
    assert not np.shares_memory(Potentials.grid(small, 1.0).unary, small)
    assert np.shares_memory(Potentials.grid(large, 1.0).unary, large)


# pickling


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
def test_potentials_can_be_pickled(name: str) -> None:
    pot = models()[name]
    assert pot.model.unary is pot.unary  # cached, but not pickled
    sent = pickle.dumps(pot)
    loaded = pickle.loads(sent)
    assert "model" not in loaded.__dict__
    assert repr(loaded) == repr(pot)
    assert len(arrays_of(loaded)) == len(arrays_of(pot))
    for original, copied in zip(arrays_of(pot), arrays_of(loaded), strict=True):
        assert np.array_equal(original, copied)
        assert not copied.flags.writeable
    first, second = (infer(p, "locpmap", n_samples=5, seed=3, backend="reference") for p in (pot, loaded))
    assert np.array_equal(first.probability, second.probability)


@pytest.mark.parametrize("method", sorted(DECODERS))
def test_results_can_be_pickled_and_copied(method: str) -> None:
    result = infer(Potentials.grid(noisy(2, 3), 0.5), method, backend="reference")
    for loaded in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert repr(loaded) == repr(result)
        assert loaded.status is result.status
        assert np.array_equal(loaded.labels, result.labels)
        assert loaded.score == result.score


def test_results_with_a_pending_ending_can_be_pickled() -> None:
    calls = []

    def ending() -> Ending:  # as on a GPU, where this call waits
        calls.append(1)
        return Ending(lp.result.Status.COMPLETE, 0.5, 3.0)

    done = infer(Potentials.grid(noisy(2, 3), 0.5), "locpmap", n_samples=4, backend="reference")
    pending = Result(
        done.labels, done.probability, "locpmap", "triton", "cuda", ending=ending, potentials=done.potentials
    )
    assert not calls
    loaded = pickle.loads(pickle.dumps(pending))
    assert (loaded.status, loaded.seconds, loaded.n_sweeps) == (lp.result.Status.COMPLETE, 0.5, 3.0)
    assert pending.converged
    assert len(calls) == 1


def test_results_with_tensors_can_be_pickled() -> None:
    torch = pytest.importorskip("torch")
    pot = Potentials.grid(torch.zeros((2, 3, 2)), 1.0)
    loaded = pickle.loads(pickle.dumps(infer(pot, "icm", backend="reference")))
    assert isinstance(loaded.labels, torch.Tensor)
    assert isinstance(loaded.potentials.local_scores(loaded.labels), torch.Tensor)
