"""Placement: the backend and device of a decoding run, automatic or requested."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from locpmap.learning import linear
from locpmap.potentials import Potentials
from locpmap.refining import adapting, guiding

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from locpmap.kernels.triton.backend import TritonKernels  # noqa: E402

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


@pytest.mark.parametrize("name", ["reference", "numba", "triton"])
def test_kernels_can_be_copied_and_pickled(name: str) -> None:
    """Copies have the same name, device and threads."""
    kernels: Any = TritonKernels("cuda:1") if name == "triton" else CpuKernels(name, 3)
    expected = (name, "cuda:1", 1) if name == "triton" else (name, None, 3)
    kernels.threads.map(abs, [(1,), (-2,)])
    for copied in (copy.copy(kernels), copy.deepcopy(kernels), pickle.loads(pickle.dumps(kernels))):
        assert (copied.name, copied.device, copied.threads.n_threads) == expected
        assert copied.threads.map(abs, [(1,), (-2,)]) == [1, 2]
        copied.close()
    assert hasattr(kernels, "climb")
    assert not hasattr(kernels, "climp")
    kernels.close()


# kernels outside `infer` run on the device of their tensors


class Devices:
    """Replacement of `current_device`: records the arrays given to it, and which one is current."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        self.current: Any = None
        self.entered: list[Any] = []
        for module in modules:
            monkeypatch.setattr(module, "current_device", self)

    @contextmanager
    def __call__(self, array: Any) -> Iterator[None]:
        self.entered.append(array)
        self.current = array
        yield
        self.current = None


def test_refining_runs_on_the_device_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.zeros(1, 5, 7, 2)
    devices = Devices(monkeypatch, guiding, adapting)

    def kernel(*given: Any) -> tuple[Any, Any]:
        assert devices.current.data_ptr() == scores.data_ptr()
        return torch.zeros(1), torch.ones(1)

    for module in (guiding, adapting):
        monkeypatch.setattr(module, "has_kernels", lambda device: True)
        monkeypatch.setattr(module, "kernel_of", lambda backend, operation: kernel)
    guiding.guided_log_mean(scores, torch.rand(1, 3, 5, 7))
    adapting.adapted_to(scores, scores, None, 1.0, 1.0, adapting.Rule(0.1, 0.1))
    assert len(devices.entered) == 2


def test_losses_run_on_the_device_of_the_unary_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    operators = pytest.importorskip("locpmap.nn.operators")
    devices = Devices(monkeypatch, operators)
    called = []
    for name in ("site_losses", "block_losses", "pair_gradient"):
        operation = getattr(CpuKernels, name)

        def watched(*given: Any, operation: Any = operation, name: str = name) -> Any:
            called.append((name, devices.current is not None))
            return operation(*given)

        monkeypatch.setattr(CpuKernels, name, watched)
    logits, labels = torch.zeros(1, 2, 3, 4), torch.zeros(1, 3, 4, dtype=torch.int64)
    for loss in (lp.nn.PseudolikelihoodLoss(), lp.nn.CompositeLikelihoodLoss()):
        loss(logits, torch.tensor(1.0, requires_grad=True), labels).backward()
    assert {name for name, _ in called} == {"site_losses", "block_losses", "pair_gradient"}
    assert all(inside for _, inside in called)
    assert len(devices.entered) == 3  # a launch of each loss, and the gradient of the first


def test_fits_run_on_the_device_of_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices(monkeypatch, linear)
    operation = CpuKernels.site_losses

    def watched(*given: Any) -> Any:
        assert devices.current is not None
        return operation(*given)

    monkeypatch.setattr(CpuKernels, "site_losses", watched)
    image = np.eye(6)
    options = lp.learning.FitOptions(max_iterations=1, n_threads=1)
    lp.CRF(2).fit(image, image.astype(int), options=options)
    assert all(array.shape == (1, 36) for array in devices.entered)
    assert devices.entered
