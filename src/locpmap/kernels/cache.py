"""A cache of values derived from read-only arrays: copies and plans on a device, launches, site numbers.

The cache holds no reference to the arrays.  An entry is released as soon as one of its arrays is garbage-collected.
"""

import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from locpmap.kernels.model import Array

T = TypeVar("T")

_entries: dict[Any, tuple[tuple[weakref.ref[Any], ...], Any]] = {}


def cached(arrays: tuple[Any, ...], purpose: Any, make: Callable[[], T]) -> T:
    """Return ``make()``, or the cached value of a call with an equal ``purpose`` and the identical array objects."""
    key = (purpose, *map(id, arrays))
    known = _entries.get(key)
    if known is not None and all(was() is now for was, now in zip(known[0], arrays, strict=True)):
        value: T = known[1]
        return value  # if the identities differ, an id was reused
    made = make()
    forget = partial(_entries.pop, key)  # binds no module global, which may be gone when the interpreter exits
    _entries[key] = tuple(weakref.ref(array, forget) for array in arrays), made
    return made


def placed(array: Array, device: str | None) -> Any:
    """Return a tensor on the device, or the array itself for the device None."""
    return array if device is None else import_module("torch").tensor(array, device=device).contiguous()


def placed_once(array: Array, device: str | None) -> Any:
    """Return ``placed(array, device)``, cached, for an array that is used in every pass and never modified."""
    if device is None or isinstance(array, np.memmap):  # not cached: may be larger than the device's memory
        return placed(array, device)
    return cached((array,), ("placed", device), lambda: placed(array, device))
