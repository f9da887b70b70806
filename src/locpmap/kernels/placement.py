"""Selection of the backend, the device and the number of threads.

With "auto", NumPy arrays are processed on the CPU unless a GPU is expected to be faster.  Tensors on an NVIDIA GPU are
processed there; tensors on other accelerators are copied to the CPU.  An explicit choice runs as given or raises.
"""

import math
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from locpmap.errors import BackendError, InputError, one_of, unknown
from locpmap.kernels.cpu.backend import CpuKernels
from locpmap.kernels.spec import Kernels
from locpmap.kernels.threads import available_threads

BACKENDS = ("reference", "numba")  # on NumPy arrays
ON_GPU = "triton"
DEVICES = ("auto", "cpu", "cuda")
DRIVER = Path("/dev/nvidiactl")
OTHERWISE = "use device='cpu' with backend='numba', or 'auto'"


class LeastWork(NamedTuple):
    """Smallest amounts of work for which a GPU is faster: if torch is imported already, and if not (``start``)."""

    transfer: int
    start: int


DECODING = LeastWork(2**25, 2**32)  # scores times samples: about 0.1 s on two cores, or 10 s
FITTING = LeastWork(2**22, 2**26)  # scores of sites: a fit of about 1 s on two cores, or 10 s


class Job(NamedTuple):
    """The properties of a computation that determine where it runs."""

    lies_on: str | None = None  # device (or device type) of its tensors; None for NumPy arrays
    work: int = 0  # in the units of `least_work`
    n_bytes: int = 0  # memory needed on a GPU
    least_work: LeastWork = DECODING


def place(backend: str, device: str, job: Job = Job(), n_threads: int | None = None) -> Kernels:  # noqa: B008
    """Return the kernels of a backend on a device; "auto" selects them by the job."""
    lies_on = job.lies_on if has_kernels(job.lies_on) else None
    if (backend, device) == ("auto", "auto") and lies_on is None and gpu_pays(job):
        lies_on = "cuda"
    name, where = choose(backend, device, lies_on)
    if name != ON_GPU:
        return CpuKernels(name, (n_threads or available_threads()) if name == "numba" else 1)
    kernels = import_module("locpmap.kernels.triton.backend").TritonKernels(where)
    return cast(Kernels, kernels)


def has_kernels(device: Any) -> bool:
    """Return whether tensors on a device are processed there: on an NVIDIA GPU, if Triton is installed."""
    return str(device).startswith("cuda") and find_spec(ON_GPU) is not None


def choose(backend: str, device: object, lies_on: str | None = None) -> tuple[str, str | None]:
    """Return a backend and its device (None for NumPy arrays); ``lies_on`` is the GPU with the data, or None."""
    one_of("backend", backend, ("auto", *BACKENDS, ON_GPU))
    where = device = device_name(device)
    if device == "auto":
        where = "cpu" if backend in BACKENDS else lies_on or ("cuda" if backend == ON_GPU else "cpu")
    if backend == "auto":
        backend = "numba" if where == "cpu" else ON_GPU
    if backend == ON_GPU:
        return backend, _triton_device(where)
    if where != "cpu":
        raise BackendError(f"device={device!r} was requested, but backend={backend!r} runs on the CPU: use {ON_GPU!r}")
    return backend, None


def gpu_pays(job: Job) -> bool:
    """Return whether a GPU is expected to be faster for NumPy arrays, transfers included, and has enough memory."""
    least = job.least_work.transfer if "torch" in sys.modules else job.least_work.start
    return job.work >= least and gpu_has_room(job.n_bytes)


def gpu_has_room(needed: float) -> bool:
    """Return whether a GPU has the needed bytes free; torch is imported only if an NVIDIA driver exists."""
    if "torch" not in sys.modules and not DRIVER.exists():
        return False
    if find_spec("torch") is None or find_spec(ON_GPU) is None:
        return False
    cuda = import_module("torch").cuda
    return bool(cuda.is_available()) and needed <= free_bytes(cuda)


def free_bytes(cuda: Any) -> float:
    """Return the free bytes of the current GPU, including torch's unused cache; infinite if unknown."""
    try:
        return float(cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated())
    except (RuntimeError, AssertionError):  # decoding on this GPU raises the reason
        return math.inf


def why_no_gpu() -> str:
    """Return the reason why no NVIDIA GPU can be used."""
    if find_spec("torch") is None:
        return "torch is not installed"
    cuda = import_module("torch").version.cuda
    return "torch finds none" if cuda else "this torch is built without CUDA"


def device_name(device: object) -> str:
    """Return the name of a device, given by name or as a torch.device; raise unless it is the CPU or an NVIDIA GPU."""
    if "torch" in sys.modules and isinstance(device, sys.modules["torch"].device):
        device = "cpu" if device.type == "cpu" else str(device)
    if isinstance(device, str) and (device in DEVICES or (device.startswith("cuda:") and device[5:].isdigit())):
        return device
    if device == "gpu":
        raise InputError("unknown device 'gpu': did you mean 'cuda'?")
    if isinstance(device, str) and device.partition(":")[0] in ("mps", "xpu"):
        raise BackendError(f"device={device!r} has no kernels: use 'cpu', or 'auto', which copies tensors to the CPU")
    raise unknown("device", device, DEVICES)


@cache
def _triton_device(device: str) -> str:
    """Return the device of Triton's kernels: an NVIDIA GPU or, with Triton's interpreter, the CPU."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            raise BackendError(
                f"device='cuda' and backend='triton' need {package}, which is not installed: {OTHERWISE}"
            )
    if import_module("triton.knobs").runtime.interpret:
        return "cpu"
    torch = import_module("torch")
    if not device.startswith("cuda") or not torch.cuda.is_available():
        why = why_no_gpu() if device.startswith("cuda") else f"device={device!r} is not one"
        raise BackendError(f"device='cuda' and backend='triton' need an NVIDIA GPU, and {why}: {OTHERWISE}")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        raise BackendError(f"device={device!r} was requested, but torch cannot use it: use 'cpu' or 'auto'") from None
    return device
