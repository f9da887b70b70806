"""Message-passing decoders with Triton kernels match the reference; results are tensors on the input's device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.odd_models import ODD, normal
from tests.triton.placing import DEVICE

from locpmap import arrays
from locpmap.inference import infer
from locpmap.inference.decoder import Decoder, Problem
from locpmap.inference.lbp import LBP
from locpmap.inference.max_product import MaxProduct
from locpmap.inference.perturb_and_max_product import PerturbAndMaxProduct
from locpmap.inference.trw import TRW
from locpmap.kernels import message_plan
from locpmap.kernels.triton import backend as launches
from locpmap.kernels.triton.backend import TritonKernels
from locpmap.kernels.triton.message_state import _domain
from locpmap.potentials import Potentials
from locpmap.result import Status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter's NumPy warns of log 0
]

CASES = ["1x1", "nx1", "primes", "eight neighbours", "batch", "table per edge and image", "no edges", "forbidden pairs"]


def compare(pot: Potentials, decoder: Decoder, rounding: float = 1e-9) -> None:
    """Compare labels, probabilities, bounds, sweeps and status with the reference."""
    mine, reference = (infer(pot, decoder, backend=backend) for backend in ("triton", "reference"))
    assert (mine.backend, mine.device) == ("triton", DEVICE)
    assert (mine.n_sweeps, mine.status) == (reference.n_sweeps, reference.status)
    np.testing.assert_array_equal(mine.labels, reference.labels)
    if reference.probability is not None:
        np.testing.assert_allclose(mine.probability, reference.probability, rtol=0, atol=rounding)
    if reference.log_partition is not None:
        np.testing.assert_allclose(mine.log_partition, reference.log_partition, rtol=rounding, atol=rounding)
    if reference.samples is not None:
        np.testing.assert_array_equal(mine.samples, reference.samples)


@pytest.mark.parametrize(
    ("case", "schedule"), [*((case, "auto") for case in CASES), ("primes", "sequential"), ("batch", "sequential")]
)
def test_lbp_matches_the_reference(case: str, schedule: str) -> None:
    compare(ODD[case], LBP(schedule=schedule, max_sweeps=12, tolerance=1e-3))


@pytest.mark.parametrize("case", CASES[::2])
def test_trw_matches_the_reference(case: str) -> None:
    compare(ODD[case], TRW(max_sweeps=5, tolerance=1e-3, n_forests=3))


@pytest.mark.parametrize("schedule", ["auto", "sequential"])
@pytest.mark.parametrize("case", ["nx1", "primes", "forbidden pairs", "no edges"])
def test_max_product_matches_the_reference(case: str, schedule: str) -> None:
    compare(ODD[case], MaxProduct(schedule=schedule, max_sweeps=13, tolerance=1e-3))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["nx1", "batch"])
def test_perturb_and_max_product_matches_the_reference(case: str) -> None:
    compare(ODD[case], PerturbAndMaxProduct(n_samples=3, max_sweeps=11, keep_samples=True))


def test_batch_of_log_and_linear_domain_images() -> None:
    """The second image's weights are too large for the linear domain."""
    weights = np.stack([normal(7), normal(7, scale=300.0)])
    compare(Potentials.graph(normal(2, 8, 3), [[i, i + 1] for i in range(7)], weights), LBP(schedule="coloured"))


@pytest.mark.slow
@pytest.mark.parametrize("decoder", [LBP(), TRW(n_forests=3)], ids=lambda d: d.name)
def test_single_precision_matches_the_reference(decoder: Decoder) -> None:
    pot = ODD["primes"]
    single = replace(pot, unary=pot.unary.astype(np.float32))
    mine, reference = infer(single, decoder, backend="triton"), infer(pot, decoder, backend="reference")
    assert mine.probability.dtype == np.float32
    np.testing.assert_allclose(mine.probability, reference.probability, rtol=0, atol=2e-5)
    np.testing.assert_allclose(mine.log_partition, reference.log_partition, rtol=1e-5)


def test_the_linear_domain_is_smaller_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights add up to 60 at a site: products of messages there would leave the range of single precision."""
    pot = Potentials.graph(normal(5, 3, scale=30.0).astype(np.float32), [[i, i + 1] for i in range(4)], 30.0)
    reference = infer(pot, "lbp", backend="reference")
    mine = infer(pot, "lbp", backend="triton")
    np.testing.assert_allclose(mine.probability, reference.probability, rtol=0, atol=1e-5)
    with monkeypatch.context() as patch:
        patch.setattr(message_plan, "MOST_RANGE_SINGLE", -1.0)
        logs = infer(pot, "lbp", backend="triton")
    np.testing.assert_array_equal(mine.probability, logs.probability)


@pytest.mark.slow
@pytest.mark.parametrize("per_launch", [1, 3])
@pytest.mark.parametrize("decoder", [LBP(tolerance=1e-3), LBP(tolerance=0.0, max_sweeps=4)], ids=["all", "four"])
def test_results_do_not_depend_on_sweeps_per_launch(
    per_launch: int, decoder: LBP, monkeypatch: pytest.MonkeyPatch
) -> None:
    pot = ODD["batch"]
    whole = infer(pot, decoder, backend="triton")
    monkeypatch.setattr(launches, "MOST_SWEEPS", per_launch)
    parts = infer(pot, decoder, backend="triton")
    assert (parts.n_sweeps, parts.status) == (whole.n_sweeps, whole.status)
    np.testing.assert_array_equal(parts.probability, whole.probability)


@pytest.mark.parametrize(("max_sweeps", "status"), [(50, Status.CONVERGED), (2, Status.MAX_SWEEPS)])
def test_last_launch_is_read_only_when_finishing(max_sweeps: int, status: Status) -> None:
    pot = Potentials.grid(normal(2, 3, 2), 0.3)
    decoder = LBP(max_sweeps=max_sweeps)
    problem = Problem(pot.to(DEVICE), TritonKernels(DEVICE), (0, 0))
    state: Any = decoder.init(problem)
    assert decoder.step(problem, state) == (max_sweeps, max_sweeps, False)
    assert state.unread
    decoder.finish(problem, state)
    assert not state.unread
    reference = infer(pot, decoder, backend="reference")
    mine = infer(pot, decoder, backend="triton")
    assert (mine.status, mine.n_sweeps) == (reference.status, reference.n_sweeps) == (status, state.made)


def test_domain_of_potts_models_is_cached() -> None:
    pot = Potentials.grid(normal(2, 3, 2), 0.3).to(DEVICE)
    assert _domain(pot.view) is _domain(pot.view)
    tables = Potentials.grid(normal(2, 3, 2), normal(2, 2)).to(DEVICE)
    assert _domain(tables.view) is not _domain(tables.view)


@pytest.mark.parametrize("decoder", [LBP(), TRW(), MaxProduct(), PerturbAndMaxProduct(3)], ids=lambda d: d.name)
def test_results_are_tensors_on_the_input_device(decoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "on_gpu", arrays.is_tensor)  # also for CPU tensors in the interpreter
    unary, right, down = normal(4, 5, 3), normal(4, 4), normal(3, 5)
    pot = Potentials.grid(*_placed(unary, (right, down)))
    decoder = replace(decoder, max_sweeps=3)
    mine, reference = infer(pot, decoder, backend="triton"), infer(pot.to(None), decoder, backend="reference")
    for name in ("labels", "probability"):
        if (expected := getattr(reference, name)) is not None:
            assert torch.is_tensor(getattr(mine, name))
            assert getattr(mine, name).device.type == DEVICE
            np.testing.assert_allclose(getattr(mine, name).cpu(), expected.cpu(), rtol=0, atol=1e-9)


def _placed(unary: np.ndarray, pairwise: tuple[np.ndarray, ...]) -> tuple[Any, Any]:
    place = [torch.from_numpy(array).to(DEVICE) for array in (unary, *pairwise)]
    return place[0], tuple(place[1:])
