"""Where decoding takes place, asked for or not."""

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
    """As on a machine with a GPU that torch can use."""
    placement._triton_device.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *shape, device: None)
    monkeypatch.setattr("triton.knobs.runtime.interpret", False)
    yield
    placement._triton_device.cache_clear()


def chosen(pot: Potentials, decoder: Decoder, backend: str = "auto", device: str = "auto") -> tuple[str, str | None]:
    kernels = place_decoding(pot, decoder, backend, device)
    return kernels.name, kernels.device


@pytest.mark.usefixtures("_gpu")
def test_large_jobs_go_to_a_gpu_and_small_ones_stay() -> None:
    assert chosen(LARGE, lp.LocPMAP()) == ("triton", "cuda")
    assert chosen(SMALL, lp.LocPMAP()) == ("numba", None)
    assert chosen(LARGE, lp.LocPMAP(n_samples=1)) == ("numba", None)
    assert chosen(LARGE, lp.ICM()) == ("numba", None)


@pytest.mark.usefixtures("_gpu")
def test_a_choice_stands() -> None:
    assert chosen(LARGE, lp.LocPMAP(), device="cpu") == ("numba", None)
    assert chosen(LARGE, lp.LocPMAP(), "numba") == ("numba", None)
    assert chosen(SMALL, lp.LocPMAP(), "triton") == ("triton", "cuda")
    assert chosen(SMALL, lp.LocPMAP(), device="cuda:1") == ("triton", "cuda:1")


@pytest.mark.usefixtures("_gpu")
def test_methods_of_the_cpu_stay_there() -> None:
    assert chosen(LARGE, lp.Exact()) == ("numba", None)
    with pytest.raises(BackendError, match="method exact runs on the CPU: use device='cpu' or 'auto'"):
        chosen(LARGE, lp.Exact(), device="cuda")


@pytest.mark.usefixtures("_gpu")
def test_tensors_are_decoded_where_there_are_kernels() -> None:
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
    with pytest.raises(BackendError, match="needs triton, which is not installed"):
        place("auto", "cuda", Job("cuda"))


def test_what_lies_where_it_is_decoded_is_taken_as_it_is() -> None:
    """What a model keeps for its kernels must outlive a call."""
    pot = Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    assert pot.to(None) is pot
    assert pot.view is pot.view


def test_without_a_gpu_everything_stays() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert not gpu_pays(Job(None, 2**40, bytes_needed(LARGE)))
    assert place_decoding(LARGE, lp.LocPMAP(), "auto", "auto").device is None
    with pytest.raises(BackendError, match=r"device='cuda'.* needs an NVIDIA GPU"):
        lp.infer(SMALL, device="cuda")


def test_torch_is_not_imported_for_a_job_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(placement, "DRIVER", Path("/"))
    monkeypatch.setattr(placement, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert not gpu_pays(Job(None, lp.LocPMAP().work(LARGE.unary.size)))


def test_torch_decodes_nothing() -> None:
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
def test_an_unknown_device_is_one_clear_error(device: Any, hint: str) -> None:
    for backend in ("auto", "numba", "triton"):
        with pytest.raises(InputError, match=re.escape(hint)):
            choose(backend, device)


def test_a_device_without_kernels_is_refused_by_name() -> None:
    for backend in ("auto", "numba", "triton"):
        with pytest.raises(BackendError, match="device='mps' has no kernels: use 'cpu', or 'auto'"):
            choose(backend, "mps")
    with pytest.raises(BackendError, match="device='cuda' was requested, but backend='numba' runs on the CPU"):
        choose("numba", "cuda")


@pytest.mark.parametrize("name", ["reference", "numba"])
def test_kernels_are_plain_objects(name: str) -> None:
    """They can be copied and sent to another process, and have what they have."""
    kernels = CpuKernels(name, 3)
    kernels.threads.map(abs, [(1,), (-2,)])
    for again in (copy.copy(kernels), copy.deepcopy(kernels), pickle.loads(pickle.dumps(kernels))):
        assert (again.name, again.device, again.threads.n_threads) == (name, None, 3)
        assert again.threads.map(abs, [(1,), (-2,)]) == [1, 2]
        again.close()
    assert hasattr(kernels, "climb")
    assert not hasattr(kernels, "climp")
    kernels.close()
