"""Argument types of kernels.  Numba compiles one version of a kernel per combination of types."""

from __future__ import annotations

from typing import Any

import numpy as np


def read_only(*arrays: Any) -> tuple[Any, ...]:
    """Return read-only views of arrays.

    Whether an array is writeable is part of its type.  Callers pass both kinds, so without these views a kernel with
    five inputs could be compiled 32 times.
    """
    views = tuple(np.asarray(array).view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def length_type(length: int, *, known: bool) -> Any:
    """Return an object whose ``len`` is the length of an axis.

    A tuple has its length in its type, so loops over a known length are unrolled.  All other lengths share one compiled
    version.
    """
    return (0,) * length if known else np.empty(length)
