"""Decorators of the Numba kernels, which compile as little as possible, and report progress.

By default Numba also compiles a wrapper for Python and one for C around every function, and counts references to
arrays.  Only functions that Python calls need the first wrapper, none needs the second, and only functions that
allocate arrays count references.
"""

from functools import partial
from typing import Any

from numba import njit
from numba.core import event

from locpmap.kernels.compile_progress import progress

_compile: Any = partial(njit, error_model="numpy", no_cfunc_wrapper=True)

kernel = _compile(nogil=True, cache=True)
"""Called from Python; compiled code is cached on disk."""

inner = _compile(no_cpython_wrapper=True, _nrt=False)
"""Called from kernels; allocates no arrays."""

inlined = _compile(no_cpython_wrapper=True, _nrt=False, forceinline=True)
"""Like `inner`, and inlined into its callers."""

allocating = _compile(no_cpython_wrapper=True)
"""Called from kernels; allocates arrays, or calls functions that do."""


class _Listener(event.Listener):
    def on_start(self, event):
        if _ours(event):
            progress.begin(event.data["dispatcher"])

    def on_end(self, event):
        if _ours(event):
            progress.end(event.data["dispatcher"])


def _ours(event):
    return event.data["dispatcher"].py_func.__module__.startswith("locpmap.")


event.register("numba:compile", _Listener())
