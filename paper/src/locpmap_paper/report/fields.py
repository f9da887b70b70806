"""Conversion of JSON values to typed dataclasses, with errors that give the path of a wrong value.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Point:
...     x: float
...     name: str | None
>>> build(Point, {"x": 1, "name": None}, "point")
Point(x=1.0, name=None)
>>> build(Point, {"x": "one", "name": None}, "point")
Traceback (most recent call last):
locpmap.errors.InputError: point.x is 'one', expected a number
"""

from __future__ import annotations

import reprlib
import types
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from locpmap.errors import InputError

T = TypeVar("T")


def build(kind: type[T], value: Any, where: str) -> T:
    """Build the dataclass from a JSON object; ignore unknown keys, and allow fields with a default to be absent."""
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    values = {}
    for name, hint in _hints(cast(Hashable, kind)).items():
        if name not in value and hasattr(kind, name):
            continue  # the dataclass has a default
        if name not in value:
            raise InputError(f"{where} has no {name!r}, expected {_words(hint)}")
        values[name] = _convert(hint, value[name], f"{where}.{name}")
    return kind(**values)


@cache  # a record has thousands of rows of a few types
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(hint: Any, value: Any, where: str) -> Any:
    arguments = get_args(hint)
    if hint is Any:
        return value
    if isinstance(hint, types.UnionType):  # unions are always "T | None"
        return None if value is None else _convert(arguments[0], value, where)
    if is_dataclass(hint):
        return build(cast(type, hint), value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise _wrong(where, value, _words(hint))
        return tuple(_convert(arguments[0], each, f"{where}[{n}]") for n, each in enumerate(value))
    if get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise _wrong(where, value, _words(hint))
        return {key: _convert(arguments[1], each, f"{where}.{key}") for key, each in value.items()}
    _, make, accepts = PLAIN[hint]
    if not accepts(value):
        raise _wrong(where, value, _words(hint))
    return make(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# For each plain type: its name in messages, its constructor, and the check of a value.
PLAIN: dict[Any, tuple[str, Callable[[Any], Any], Callable[[Any], bool]]] = {
    str: ("a text", str, lambda value: isinstance(value, str)),
    bool: ("true or false", bool, lambda value: isinstance(value, bool)),
    int: ("a whole number", int, lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", float, _is_number),
}


def _words(hint: Any) -> str:
    """Return the expected type as a phrase for an error message."""
    if isinstance(hint, types.UnionType):
        return f"{_words(get_args(hint)[0])} or null"
    if get_origin(hint) is tuple:
        return "a list"
    return PLAIN[hint][0] if hint in PLAIN else "an object"


def _wrong(where: str, came: Any, expected: str) -> InputError:
    return InputError(f"{where} is {reprlib.repr(came)}, expected {expected}")
