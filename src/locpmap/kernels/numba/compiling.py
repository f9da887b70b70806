"""Decorators of the Numba kernels, which compile as little as possible, and report progress.

By default Numba also compiles a wrapper for Python and one for C around every function, and counts references to
arrays.  Only functions that Python calls need the first wrapper, none needs the second, and only functions that
allocate arrays count references.
"""

from contextlib import suppress
from functools import partial
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from locpmap.errors import BackendError
from locpmap.kernels.compile_progress import progress

if getattr(numba.config, "DISABLE_JIT", 0):
    raise BackendError('NUMBA_DISABLE_JIT is set, expected it unset (or backend="reference", which is slow)')

_compile: Any = partial(numba.njit, error_model="numpy", no_cfunc_wrapper=True)


class _Disk(FunctionCache):
    """Compiled code on disk; where Numba would raise (a damaged file, a full disk), the kernel is compiled again."""

    def load_overload(self, *key):
        try:
            return super().load_overload(*key)
        except Exception:  # a truncated file fails in any way
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *pair):
        with suppress(Exception):
            super().save_overload(*pair)


def kernel(function):
    """Compile a function that Python calls; the code is cached on disk if a folder for it can be written."""
    compiled = _compile(nogil=True)(function)
    with suppress(RuntimeError):  # no such folder
        compiled._cache = _Disk(function)
    return compiled


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
