"""Exceptions of the library.

Each message is one sentence that states the argument, the value received and the value expected.
"""

import difflib
import math
from collections.abc import Iterable
from importlib import import_module
from numbers import Integral, Rational, Real
from typing import Any

__all__ = [
    "BackendError",
    "InputError",
    "InputTypeError",
    "LocpmapError",
    "TooLargeError",
    "fraction",
    "imported",
    "one_of",
    "true_or_false",
    "unknown",
    "whole_number",
    "within",
]


class LocpmapError(Exception):
    """Base class of all exceptions that the library raises deliberately."""


class InputError(LocpmapError, ValueError):
    """Invalid value of an argument."""


class InputTypeError(LocpmapError, TypeError):
    """Argument of the wrong type."""


class TooLargeError(InputError):
    """Model too large for an exact method.  The message states the required size."""


class BackendError(LocpmapError, RuntimeError):
    """Requested backend or device that is not available."""


def unknown(what: str, came: object, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name, with the most similar known name as a suggestion."""
    names = sorted(known)
    near = difflib.get_close_matches(str(came), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return InputError(f"unknown {what} {came!r}: {hint}")


def imported(package: str, otherwise: str) -> Any:
    """Import an optional package; raise with the sentence ``otherwise`` if it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        raise InputError(otherwise) from None


def one_of(what: str, came: str, known: Iterable[str]) -> str:
    """Return the name, or raise if it is not one of the known ones."""
    if came not in known:
        raise unknown(what, came, known)
    return came


def true_or_false(name: str, value: object) -> bool:
    """Return the value as a Python `bool`, or raise if it is not one of Python or NumPy."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InputTypeError(f"{name} is {value!r}, expected True or False")
    return bool(value)


def whole_number(name: str, value: object, least: int, most: int = 2**31 - 1) -> int:
    """Return the value as a Python `int`, or raise if it is not an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name} is {value!r}, expected a whole number of at least {least}")
    number = int(value)
    if number < least:
        raise InputError(f"{name} is {number}, expected a whole number of at least {least}")
    if number > most:
        raise InputError(f"{name} is {number}, expected a whole number of at most {most}")
    return number


def within(name: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False) -> None:
    """Raise if the value is not a number from ``low`` to ``high``, or is ``low`` itself with ``open_low``."""
    fraction = isinstance(value, Rational) and not isinstance(value, Integral)  # kernels do not accept fractions
    if isinstance(value, bool) or fraction or not isinstance(value, Real):
        raise InputTypeError(f"{name} is {value!r}, expected a number")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = math.inf
    if not (low < number if open_low else low <= number) or not number <= high or math.isinf(number):
        bound = f"above {low:g}" if open_low else f"at least {low:g}"
        limit = f" and at most {high:g}" if high < math.inf else ""
        raise InputError(f"{name} is {value}, expected a number {bound}{limit}")


def fraction(name: str, value: object) -> float:
    """Return the value as a Python `float`, or raise if it is not a number strictly between 0 and 1."""
    within(name, value, 0, 1)
    number = float(value)  # type: ignore[arg-type]
    if not 0 < number < 1:
        raise InputError(f"{name} is {value}, expected a number between 0 and 1")
    return number
