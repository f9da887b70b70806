"""What decides how often a kernel is compiled: Numba compiles one version for each combination of argument types."""

from __future__ import annotations

from typing import Any

import numpy as np


def read_only(*arrays: Any) -> tuple[Any, ...]:
    """Return read-only views of inputs.

    Whether an array can be written to is part of its type.  Callers pass both kinds, and a kernel with five inputs
    would be compiled up to 32 times.
    """
    views = tuple(np.asarray(array).view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def length_type(length: int, *, known: bool) -> Any:
    """Return a stand-in for an axis, of which kernels take ``len``.

    The length of a tuple is part of its type, so loops over a known length are unrolled.  All other lengths share one
    compiled version.
    """
    return (0,) * length if known else np.empty(length)
