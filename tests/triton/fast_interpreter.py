"""Make Triton's interpreter more than twice as fast; its results stay the same."""

from __future__ import annotations

from typing import Any

from triton.language import core
from triton.runtime.interpreter import InterpretedFunction


def speed_up() -> None:
    """Apply both changes to Triton's interpreter."""
    prepare_functions_once()
    cache_types_of_shapes()


def prepare_functions_once() -> None:
    """Prepare each function at its first call only.

    Before every call of a function in a kernel, the interpreter replaces all of Triton's operations by its own.
    """
    prepare_and_call = InterpretedFunction.__call__

    def call(function: Any, *given: Any, **named: Any) -> Any:
        prepared = InterpretedFunction.rewritten_fn.get(function.fn)
        return prepare_and_call(function, *given, **named) if prepared is None else prepared(*given, **named)

    InterpretedFunction.__call__ = call


def cache_types_of_shapes() -> None:
    """Build the type of a shape once: every result of an operation has a shape, which is a typed tuple of integers."""
    build, types = core._type_for_tuple_values, {}

    def type_of(values: Any, fields: Any = None) -> Any:
        shape = tuple([value.value if type(value) is core.constexpr else value for value in values])
        if fields is not None or not all(type(size) is int for size in shape):
            return build(values, fields)
        if shape not in types:
            types[shape] = build(values)
        return types[shape]

    core._type_for_tuple_values = type_of
