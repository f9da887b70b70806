"""Loops over plain arrays, once per backend: ``kernels/<backend>/<operation>.py`` holds ``<operation>``.

``reference`` is NumPy, slow and readable: the truth that the others are compared with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from locpmap.errors import BackendError, unknown
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


def choose_backend(backend: str, device: str) -> Backend:
    """The named backend or an error; "auto" is Numba, which runs wherever the library installs."""
    if device not in ("auto", "cpu"):
        if device != "cuda":
            raise unknown("device", device, ("auto", "cpu", "cuda"))
        raise BackendError("device='cuda' was asked for, but this version has no GPU engine: use 'cpu' or 'auto'")
    if backend in PLANNED:
        raise BackendError(f"backend={backend!r} is not part of this version: use one of {', '.join(BACKENDS)}")
    if backend not in ("auto", *BACKENDS):
        raise unknown("backend", backend, ("auto", *BACKENDS, *PLANNED))
    return Backend("numba" if backend == "auto" else backend)
