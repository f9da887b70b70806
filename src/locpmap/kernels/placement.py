"""Where to run: which backend, on which device, and with how many threads.

"auto" keeps NumPy arrays on the CPU unless a GPU pays, decodes tensors on an NVIDIA GPU there, and takes tensors on
other accelerators to the CPU.  A named choice runs or raises.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from locpmap.errors import BackendError, InputError, unknown
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.spec import Kernels
from locpmap.kernels.threads import available_threads

BACKENDS = ("reference", "numba")  # of NumPy arrays
ON_GPU = "triton"
DEVICES = ("auto", "cpu", "cuda")
DRIVER = Path("/dev/nvidiactl")
OTHERWISE = "use backend='numba' with device='cpu', or 'auto' for both"


class Worth(NamedTuple):
    """Visits of scores from which a GPU pays: with torch at hand, or where torch has yet to be imported."""

    transfer: int
    start: int


DECODING = Worth(2**25, 2**32)  # scores times samples: a tenth of a second of two cores and more, or ten seconds
FITTING = Worth(2**22, 2**26)  # scores of sites: a fit of about a second of two cores and more, or ten seconds


class Job(NamedTuple):
    """What is to be computed, as far as it matters where."""

    lies_on: str | None = None  # the device of its tensors, or its kind; None for NumPy arrays
    work: int = 0  # visits of scores, in the units of `worth`
    n_bytes: int = 0  # memory that it takes on a GPU
    worth: Worth = DECODING


def place(backend: str, device: str, job: Job = Job(), n_threads: int | None = None) -> Kernels:  # noqa: B008
    """Return the kernels of the named backend on the named device, or of those that suit the job."""
    kernels_there = str(job.lies_on).startswith("cuda") and find_spec(ON_GPU) is not None
    lies_on = job.lies_on if kernels_there else None
    if (backend, device) == ("auto", "auto") and lies_on is None and gpu_pays(job):
        lies_on = "cuda"
    name, where = choose(backend, device, lies_on)
    if name != ON_GPU:
        return CpuKernels(name, (n_threads or available_threads()) if name == "numba" else 1)
    kernels = import_module("locpmap.kernels.triton.backend").TritonKernels(where)
    return cast(Kernels, kernels)


def choose(backend: str, device: str, lies_on: str | None = None) -> tuple[str, str | None]:
    """Return the backend's name and its device, None for NumPy arrays; raise for what cannot be.

    ``lies_on`` is the device that device "auto" means, unless the backend is of NumPy arrays.
    """
    known = (*BACKENDS, ON_GPU)
    if backend not in ("auto", *known):
        raise unknown("backend", backend, ("auto", *known))
    check_device(device)
    where = device
    if device == "auto":
        where = "cpu" if backend in BACKENDS else lies_on or ("cuda" if backend == ON_GPU else "cpu")
    if backend == "auto":
        backend = "numba" if where == "cpu" else ON_GPU
    if backend == ON_GPU:
        return backend, _triton_device(where)
    if where != "cpu":
        raise BackendError(f"device={device!r} was asked for, but backend={backend!r} runs on the CPU: use {ON_GPU!r}")
    return backend, None


def gpu_pays(job: Job) -> bool:
    """Whether NumPy arrays are better taken to this machine's GPU, the way there and back included."""
    least = job.worth.transfer if "torch" in sys.modules else job.worth.start
    return job.work >= least and gpu_has_room(job.n_bytes)


def gpu_has_room(needed: float) -> bool:
    """Whether there is a GPU with so many bytes free; torch is imported only where there is a driver."""
    if "torch" not in sys.modules and not DRIVER.exists():
        return False
    if find_spec("torch") is None or find_spec(ON_GPU) is None:
        return False
    cuda = import_module("torch").cuda
    return bool(cuda.is_available()) and needed <= free_bytes(cuda)


def free_bytes(cuda: Any) -> float:
    """Return the free bytes of the current GPU, with those that torch holds unused; infinite where it does not say."""
    try:
        return float(cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated())
    except (RuntimeError, AssertionError):  # whoever decodes there will hear why
        return math.inf


def why_no_gpu() -> str:
    """Return what is in the way of an NVIDIA GPU."""
    if find_spec("torch") is None:
        return "torch is not installed"
    cuda = import_module("torch").version.cuda
    return "torch finds none" if cuda else "this torch is built without CUDA"


def check_device(device: str) -> None:
    """Refuse what is neither the CPU nor an NVIDIA GPU."""
    if device in DEVICES or (isinstance(device, str) and device.startswith("cuda:") and device[5:].isdigit()):
        return
    if device == "gpu":
        raise InputError("unknown device 'gpu': did you mean 'cuda'?")
    if isinstance(device, str) and device.partition(":")[0] in ("mps", "xpu"):
        raise BackendError(f"device={device!r} has no kernels: use 'cpu', or 'auto', which takes its tensors there")
    raise unknown("device", device, DEVICES)


@cache
def _triton_device(device: str) -> str:
    """Return where Triton's kernels run: an NVIDIA GPU, or, where it only interprets them, the CPU."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            raise BackendError(
                f"backend='triton' (that of device='cuda') needs {package}, which is not installed: {OTHERWISE}"
            )
    if import_module("triton.knobs").runtime.interpret:
        return "cpu"
    torch = import_module("torch")
    if not device.startswith("cuda") or not torch.cuda.is_available():
        why = why_no_gpu() if device.startswith("cuda") else f"device={device!r} is not one"
        raise BackendError(f"backend='triton' (that of device='cuda') needs an NVIDIA GPU, and {why}: {OTHERWISE}")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        raise BackendError(f"device={device!r} was asked for, but torch cannot use it: use 'cpu' or 'auto'") from None
    return device
