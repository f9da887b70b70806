"""Loops over plain arrays, once per backend: ``kernels/<backend>/<operation>.py`` holds ``<operation>``.

``reference`` is NumPy, slow and readable: the truth that the others are compared with.  ``numba`` runs on the CPU,
``triton`` on an NVIDIA GPU; ``torch`` computes the objectives of learning on either.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from locpmap.errors import BackendError, InputError, unknown
from locpmap.kernels.model import Model

__all__ = ["BACKENDS", "ON_GPU", "Backend", "Model", "choose_backend"]

BACKENDS = ("reference", "numba")  # of NumPy arrays
ON_GPU = "triton"
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
    """Where objectives are computed: Numba on the CPU, torch on a GPU, or the named backend."""
    known = ("reference", "numba", "torch")
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if backend == "auto":
        backend = "torch" if device == "cuda" else "numba"
    if backend not in known:
        raise unknown("backend", backend, ("auto", *known))
    if device == "cuda" and backend != "torch":
        raise BackendError(f"device='cuda' was asked for, but backend={backend!r} runs on the CPU: use 'torch'")
    if backend == "torch":
        if importlib.util.find_spec("torch") is None:
            raise BackendError("backend='torch' was asked for, but torch is not installed: pip install locpmap[torch]")
        if device == "cuda" and not importlib.import_module("torch").cuda.is_available():
            raise BackendError("device='cuda' was asked for, but torch finds no GPU: use 'cpu' or 'auto'")
    return Backend(backend)


def choose_backend(backend: str, device: str) -> Backend:
    """The named backend on the named device, or an error.

    "auto" is Numba on the CPU, which runs wherever the library installs, and Triton on a GPU.
    """
    if device == "gpu":
        raise InputError("unknown device 'gpu': did you mean 'cuda'?")
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    known = (*BACKENDS, ON_GPU)
    if backend == "torch":
        raise BackendError(f"backend='torch' learns but does not decode: use one of {', '.join(known)}")
    if backend not in ("auto", *known):
        raise unknown("backend", backend, ("auto", *known))
    if backend == "auto":
        backend = ON_GPU if device == "cuda" else "numba"
    if backend != ON_GPU:
        if device == "cuda":
            raise BackendError(f"device='cuda' was asked for, but backend={backend!r} runs on the CPU: use {ON_GPU!r}")
        return Backend(backend)
    otherwise = "use backend='numba' with device='cpu', or 'auto' for both"
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            raise BackendError(f"backend='triton' needs {package}, which is not installed: {otherwise}")
    if importlib.import_module("triton.knobs").runtime.interpret:
        return Backend(backend, "cpu")
    if device == "cpu" or not importlib.import_module("torch").cuda.is_available():
        why = "device='cpu' is not one" if device == "cpu" else "torch finds none"
        raise BackendError(f"backend='triton' (that of device='cuda') needs an NVIDIA GPU, and {why}: {otherwise}")
    return Backend(backend, "cuda")
