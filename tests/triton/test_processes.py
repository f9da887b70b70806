"""Distributed learning on GPUs: by NCCL, which needs one GPU per process, and by gloo where processes share one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.processes import start
from tests.triton.learning_on_gpu import OBJECTIVES
from tests.triton.placing import DEVICE

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="NCCL needs a GPU")

SCRIPT = Path(__file__).with_name("learning_on_gpu.py")
SIZES = {"alone": 1, "nccl": 1, "shared": 2}


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("learned")
    found = {}
    for kind, size in SIZES.items():
        outcomes = start(size, SCRIPT, kind, folder / f"{kind}.npz")
        assert [status for status, _, _ in outcomes] == [0] * size, outcomes
        with np.load(folder / f"{kind}.npz") as numbers:
            found[kind] = dict(numbers)
    return found


def test_nccl_group_of_one_learns_identical_weights(learned: dict[str, dict[str, np.ndarray]]) -> None:
    for name, numbers in learned["alone"].items():
        np.testing.assert_array_equal(learned["nccl"][name], numbers)


def test_two_processes_learn_the_same_weights_as_one(learned: dict[str, dict[str, np.ndarray]]) -> None:
    """CRF sums are in double precision; a network's gradients are rounded to bfloat16 (8 bits) in every step."""
    alone, shared = learned["alone"], learned["shared"]
    for name in OBJECTIVES:
        np.testing.assert_allclose(shared[name], alone[name], rtol=0, atol=1e-12)
    assert abs(alone["moved"]).max() > 0.5
    np.testing.assert_allclose(shared["network"], alone["network"], rtol=0, atol=2.0**-8 * abs(alone["moved"]).max())
