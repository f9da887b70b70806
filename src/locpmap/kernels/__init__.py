"""Loops over plain arrays, once per backend: ``kernels/<backend>/<operation>.py`` holds ``<operation>``.

``reference`` is NumPy, slow and readable: the truth that the others are compared with.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from locpmap.errors import BackendError, InputError, unknown
from locpmap.kernels.model import Model

__all__ = ["BACKENDS", "Backend", "Model", "choose_backend"]

BACKENDS = ("reference", "numba")
PLANNED = ("torch", "triton")


class Backend:
    """The operations of one backend, imported when first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        module = importlib.import_module(f"locpmap.kernels.{self.name}.{operation}")
        function: Callable[..., Any] = getattr(module, operation)
        setattr(self, operation, function)
        return function


def learning_backend(backend: str, device: str) -> Backend:
    """Where objectives are computed: Numba on the CPU, torch on a GPU, or the named backend."""
    known = (*BACKENDS, "torch")
    if device not in ("auto", "cpu", "cuda"):
        raise unknown("device", device, ("auto", "cpu", "cuda"))
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
    """The named backend or an error; "auto" is Numba, which runs wherever the library installs."""
    if device not in ("auto", "cpu"):
        if device == "gpu":
            raise InputError("unknown device 'gpu': did you mean 'cuda'? (not in this version: use 'cpu' or 'auto')")
        if device != "cuda":
            raise unknown("device", device, ("auto", "cpu", "cuda"))
        raise BackendError("device='cuda' was asked for, but this version has no GPU engine: use 'cpu' or 'auto'")
    if backend in PLANNED:
        raise BackendError(f"backend={backend!r} is not part of this version: use one of {', '.join(BACKENDS)}")
    if backend not in ("auto", *BACKENDS):
        raise unknown("backend", backend, ("auto", *BACKENDS))
    return Backend("numba" if backend == "auto" else backend)
