"""Lookup of the per-range functions of a backend, and their division among threads."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from locpmap.kernels.model import Model
from locpmap.kernels.threads import Threads, ranges

MIN_SHARED = 16384  # scores; a sweep over fewer takes less time than starting threads


@cache
def kernel_of(backend: str, operation: str) -> Callable[..., Any]:
    """Return the function ``operation`` of ``kernels/<backend>/<operation>.py``; imported on first use."""
    function: Callable[..., Any] = getattr(import_module(f"locpmap.kernels.{backend}.{operation}"), operation)
    return function


class Dispatch:
    """The per-range functions of one backend and the threads that run them."""

    device: str | None = None

    def __init__(self, name: str, n_threads: int = 1) -> None:
        self.name, self.threads = name, Threads(n_threads)

    def kernel_of(self, operation: str) -> Callable[..., Any]:
        """Return the per-range function of an operation."""
        return kernel_of(self.name, operation)

    def sweep(self, operation: str, model: Model, *state: Any, n_active: int | None = None) -> None:
        """Run an operation ``(model, *state, lo, hi, begin, stop)`` once over every image and site.

        A call covers images lo..hi and positions begin..stop of ``model.order``.  A sweep that visits few sites
        (``n_active``, by default all) runs in one thread.  With at least one image per thread, the threads divide the
        images.  Otherwise they divide the sites of one colour class after another.
        """
        kernel, n_threads = self.kernel_of(operation), self.threads.n_threads
        n_images, n_sites, n_labels = model.unary.shape
        if (n_images * n_sites if n_active is None else n_active) * n_labels < MIN_SHARED:
            n_threads = 1
        if n_images >= n_threads:
            self.threads.map(kernel, [(model, *state, lo, hi, 0, n_sites) for lo, hi in ranges(n_images, n_threads)])
            return
        for begin, stop in zip(model.class_ptr[:-1].tolist(), model.class_ptr[1:].tolist(), strict=True):
            parts = [(begin + a, begin + b) for a, b in ranges(stop - begin, n_threads)]
            self.threads.map(kernel, [(model, *state, 0, n_images, a, b) for a, b in parts])

    def by_images(self, operation: str, model: Model, *state: Any, more: tuple[Any, ...] = ()) -> None:
        """Run an operation ``(model, *state, lo, hi, *more)``; the threads divide the images."""
        parts = ranges(len(model.unary), self.threads.n_threads)
        self.threads.map(self.kernel_of(operation), [(model, *state, lo, hi, *more) for lo, hi in parts])
