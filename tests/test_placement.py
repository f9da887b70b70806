"""Placement: the backend and device of a decoding run, automatic or requested."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import BackendError, InputError
from locpmap.inference.api import bytes_needed, place_decoding
from locpmap.inference.decoder import Decoder
from locpmap.kernels import placement
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.placement import Job, choose, gpu_pays, place
from locpmap.potentials import Potentials

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

LARGE = Potentials.grid(np.zeros((512, 512, 4), np.float32), 1.0)
SMALL = Potentials.grid(np.zeros((8, 8, 4), np.float32), 1.0)


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a machine with a GPU that torch can use."""
    placement._triton_device.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *shape, device: None)
    monkeypatch.setattr("triton.knobs.runtime.interpret", False)
    yield
    placement._triton_device.cache_clear()


def placed(pot: Potentials, decoder: Decoder, backend: str = "auto", device: str = "auto") -> tuple[str, str | None]:
    kernels = place_decoding(pot, decoder, backend, device)
    return kernels.name, kernels.device


@pytest.mark.usefixtures("_gpu")
def test_large_jobs_run_on_the_gpu_and_small_ones_on_the_cpu() -> None:
    assert placed(LARGE, lp.LocPMAP()) == ("triton", "cuda")
    assert placed(SMALL, lp.LocPMAP()) == ("numba", None)
    assert placed(LARGE, lp.LocPMAP(n_samples=1)) == ("numba", None)
    assert placed(LARGE, lp.ICM()) == ("numba", None)


@pytest.mark.usefixtures("_gpu")
def test_requested_backend_and_device_are_used() -> None:
    assert placed(LARGE, lp.LocPMAP(), device="cpu") == ("numba", None)
    assert placed(LARGE, lp.LocPMAP(), "numba") == ("numba", None)
    assert placed(SMALL, lp.LocPMAP(), "triton") == ("triton", "cuda")
    assert placed(SMALL, lp.LocPMAP(), device="cuda:1") == ("triton", "cuda:1")


@pytest.mark.usefixtures("_gpu")
def test_cpu_methods_run_on_the_cpu() -> None:
    assert placed(LARGE, lp.Exact()) == ("numba", None)
    with pytest.raises(BackendError, match="method exact runs on the CPU: use device='cpu' or 'auto'"):
        placed(LARGE, lp.Exact(), device="cuda")


@pytest.mark.usefixtures("_gpu")
def test_tensors_are_decoded_on_a_device_with_kernels() -> None:
    assert choose("auto", "auto", "cuda:1") == ("triton", "cuda:1")
    assert choose("numba", "auto", "cuda") == ("numba", None)
    assert choose("auto", "cpu", "cuda") == ("numba", None)
    assert place("auto", "auto", Job("cuda")).name == "triton"
    for device in ("mps", "xpu"):
        assert place("auto", "auto", Job(device)).name == "numba"


@pytest.mark.usefixtures("_gpu")
def test_tensors_on_a_gpu_are_decoded_on_the_cpu_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "find_spec", lambda name: None if name == "triton" else name)
    assert place("auto", "auto", Job("cuda")).name == "numba"
    placement._triton_device.cache_clear()
    with pytest.raises(BackendError, match="need triton, which is not installed"):
        place("auto", "cuda", Job("cuda"))


def test_potentials_on_the_right_device_are_not_copied() -> None:
    """Data that a model caches for its kernels must persist between calls."""
    pot = Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    assert pot.to(None) is pot
    assert pot.view is pot.view


def test_without_a_gpu_jobs_run_on_the_cpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not gpu_pays(Job(None, 2**40, bytes_needed(LARGE)))
    assert place_decoding(LARGE, lp.LocPMAP(), "auto", "auto").device is None
    with pytest.raises(BackendError, match=r"device='cuda'.* need an NVIDIA GPU"):
        lp.infer(SMALL, device="cuda")


def test_devices_of_torch_are_accepted() -> None:
    assert lp.infer(SMALL, device=torch.device("cpu")).device == "cpu"
    assert lp.infer(SMALL, device=torch.device("cpu", 0)).device == "cpu"
    with pytest.raises(BackendError, match="'mps' has no kernels"):
        lp.infer(SMALL, device=torch.device("mps"))


def test_torch_is_not_imported_for_short_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(placement, "DRIVER", Path("/"))
    monkeypatch.setattr(placement, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not gpu_pays(Job(None, lp.LocPMAP().work(LARGE.unary.size)))


def test_torch_is_not_a_backend() -> None:
    with pytest.raises(InputError, match="unknown backend 'torch': known are auto, numba, reference, triton"):
        lp.infer(SMALL, backend="torch")


@pytest.mark.parametrize(
    ("device", "hint"),
    [
        ("gpu", "did you mean 'cuda'?"),
        ("cudaa", "did you mean 'cuda'?"),
        ("meta", "unknown device 'meta'"),
        ("cuda:x", "did you mean 'cuda'?"),
        (7, "known are auto, cpu, cuda"),
    ],
)
def test_unknown_device_raises_an_error(device: Any, hint: str) -> None:
    for backend in ("auto", "numba", "triton"):
        with pytest.raises(InputError, match=re.escape(hint)):
            choose(backend, device)


def test_device_without_kernels_raises_an_error() -> None:
    for backend in ("auto", "numba", "triton"):
        with pytest.raises(BackendError, match="device='mps' has no kernels: use 'cpu', or 'auto'"):
            choose(backend, "mps")
    with pytest.raises(BackendError, match="device='cuda' was requested, but backend='numba' runs on the CPU"):
        choose("numba", "cuda")


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_kernels_can_be_copied_and_pickled(name: str) -> None:
    """Copies have the same name, device and threads."""
    kernels = CpuKernels(name, 3)
    kernels.threads.map(abs, [(1,), (-2,)])
    for copied in (copy.copy(kernels), copy.deepcopy(kernels), pickle.loads(pickle.dumps(kernels))):
        assert (copied.name, copied.device, copied.threads.n_threads) == (name, None, 3)
        assert copied.threads.map(abs, [(1,), (-2,)]) == [1, 2]
        copied.close()
    assert hasattr(kernels, "climb")
    assert not hasattr(kernels, "climp")
    kernels.close()
