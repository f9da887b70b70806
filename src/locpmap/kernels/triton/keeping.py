"""What is worked out once from arrays that nobody writes to, and kept for as long as they live."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_kept: dict[Any, tuple[tuple[weakref.ref[Any], ...], Any]] = {}


def kept_with(arrays: tuple[Any, ...], purpose: Any, make: Callable[[], T]) -> T:
    """``make()``, or what it gave before for the same arrays (the objects, not their contents) and the same purpose."""
    key = (purpose, *map(id, arrays))
    known = _kept.get(key)
    if known is not None and all(was() is now for was, now in zip(known[0], arrays, strict=True)):
        kept: T = known[1]
        return kept  # else an id was given anew
    made = make()
    forget = partial(_kept.pop, key)  # no name of this module, which is gone when the interpreter ends
    _kept[key] = tuple(weakref.ref(array, forget) for array in arrays), made
    return made
