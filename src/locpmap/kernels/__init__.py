"""Loops over plain arrays, once per backend: ``kernels/<backend>/<operation>.py`` holds ``<operation>``.

``reference`` is NumPy, slow and readable: the truth that the others are compared with.  ``numba`` runs on the CPU,
``triton`` on an NVIDIA GPU, ``torch`` wherever torch runs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from locpmap.errors import BackendError, InputError, unknown
from locpmap.kernels.model import Model

__all__ = ["BACKENDS", "ON_GPU", "Backend", "Model", "choose_backend"]

BACKENDS = ("reference", "numba")  # of NumPy arrays
ON_GPU = "triton"
ANYWHERE = "torch"  # of tensors on any device, also on those that have no kernels of their own
DEVICES = ("auto", "cpu", "cuda")


class Backend:
    """The operations of one backend, imported when first asked for.

    ``device`` is None where it takes NumPy arrays, else the device of the tensors that it takes.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        self.name, self.device = name, device

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        module = importlib.import_module(f"locpmap.kernels.{self.name}.{operation}")
        function: Callable[..., Any] = getattr(module, operation)
        setattr(self, operation, function)
        return function


def learning_backend(backend: str, device: str) -> Backend:
    """Where objectives are computed: Numba on the CPU, Triton on a GPU, or the named backend."""
    known = (*BACKENDS, "torch", ON_GPU)
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if backend not in ("auto", *known):
        raise unknown("backend", backend, ("auto", *known))
    if backend != "torch":
        return choose_backend(backend, device)
    if importlib.util.find_spec("torch") is None:
        raise BackendError("backend='torch' was asked for, but torch is not installed: pip install locpmap[torch]")
    if device == "cuda" and not importlib.import_module("torch").cuda.is_available():
        raise BackendError("device='cuda' was asked for, but torch finds no GPU: use 'cpu' or 'auto'")
    return Backend(backend)


def choose_backend(backend: str, device: str, home: str | None = None) -> Backend:
    """The named backend on the named device, or an error.

    ``home`` is the kind of device that the arrays at hand lie on, None for NumPy arrays: device "auto" is there, unless
    the backend is of NumPy arrays.  Backend "auto" is Numba on the CPU, which runs wherever the library installs,
    Triton on an NVIDIA GPU, and torch where there is no Triton.
    """
    known = (*BACKENDS, ON_GPU, ANYWHERE)
    if backend not in ("auto", *known):
        raise unknown("backend", backend, ("auto", *known))
    _check_name(device)
    where = device
    if device == "auto":
        where = "cpu" if backend in BACKENDS else home or ("cuda" if backend == ON_GPU else "cpu")
    kind = where.partition(":")[0]
    if backend == "auto":
        on_nvidia = kind == "cuda" and importlib.util.find_spec(ON_GPU) is not None
        backend = "numba" if kind == "cpu" else ON_GPU if on_nvidia else ANYWHERE
    if backend in BACKENDS:
        if kind != "cpu":
            other = ON_GPU if kind == "cuda" else ANYWHERE
            raise BackendError(
                f"device={device!r} was asked for, but backend={backend!r} runs on the CPU: use {other!r}"
            )
        return _backend(backend)
    return _backend(backend, _triton_device(where) if backend == ON_GPU else _torch_device(where))


@cache
def _backend(name: str, device: str | None = None) -> Backend:
    """One for all calls, which finds its operations once."""
    return Backend(name, device)


def _check_name(device: str) -> None:
    """Refuse what is no device of torch's, or one that holds no numbers."""
    if device in DEVICES:
        return
    if device == "gpu":
        raise InputError("unknown device 'gpu': did you mean 'cuda'?")
    if isinstance(device, str) and not device.startswith("meta") and importlib.util.find_spec("torch") is not None:
        try:
            importlib.import_module("torch").device(device)
        except RuntimeError:
            pass
        else:
            return
    raise unknown("device", device, (*DEVICES, "mps", "xpu"))


def why_no_gpu() -> str:
    """What is in the way of an NVIDIA GPU."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    cuda = importlib.import_module("torch").version.cuda
    return "torch finds none" if cuda else "this torch is built without CUDA"


@cache
def _triton_device(device: str) -> str:
    """Where Triton's kernels run: an NVIDIA GPU, or, where it only interprets them, the CPU."""
    otherwise = "use backend='numba' with device='cpu', or 'auto' for both"
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            raise BackendError(
                f"backend='triton' (that of device='cuda') needs {package}, which is not installed: {otherwise}"
            )
    if importlib.import_module("triton.knobs").runtime.interpret:
        return "cpu"
    if not device.startswith("cuda") or not importlib.import_module("torch").cuda.is_available():
        why = why_no_gpu() if device.startswith("cuda") else f"device={device!r} is not one"
        raise BackendError(f"backend='triton' (that of device='cuda') needs an NVIDIA GPU, and {why}: {otherwise}")
    return _torch_device(device)


@cache
def _torch_device(device: str) -> str:
    """A device on which torch can make a tensor."""
    if importlib.util.find_spec("torch") is None:
        raise BackendError("backend='torch' was asked for, but torch is not installed: pip install locpmap[torch]")
    try:
        importlib.import_module("torch").empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError):  # whichever the device's own module raises
        raise BackendError(f"device={device!r} was asked for, but torch cannot use it: use 'cpu' or 'auto'") from None
    return device
