"""Make Triton's interpreter several times as fast; its results and its checks stay the same.

Every operation of a kernel builds new types and shapes.  They are few, so they are built once and shared.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction


def speed_up() -> None:
    """Apply all changes to Triton's interpreter."""
    prepare_functions_once()
    share_types()
    share_shapes()
    skip_unreported_checks()
    leave_equal_shapes()
    share_constants()
    shorten_calls()


def prepare_functions_once() -> None:
    """Prepare each function at its first call only.

    Before every call of a function in a kernel, the interpreter replaces all of Triton's operations by its own.
    """
    prepare_and_call = InterpretedFunction.__call__

    def call(function: Any, *given: Any, **named: Any) -> Any:
        prepared = InterpretedFunction.rewritten_fn.get(function.fn)
        return prepare_and_call(function, *given, **named) if prepared is None else prepared(*given, **named)

    InterpretedFunction.__call__ = call


def share_types() -> None:
    """Build the types of blocks, and look up the types of NumPy, once per element type and shape."""
    numpy_type, set_up = interpreter._get_np_dtype, core.block_type.__init__
    numpy_types: dict[str, Any] = {}
    attributes: dict[Any, dict[str, Any]] = {}

    def numpy_type_of(kind: Any) -> Any:
        found = numpy_types.get(kind.name)
        if found is None:
            found = numpy_types[kind.name] = numpy_type(kind)
        return found

    def initialise(kind: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, tuple([int(getattr(size, "value", size)) for size in shape])
        if key not in attributes:
            set_up(kind, element_ty, shape)
            attributes[key] = kind.__dict__
        kind.__dict__ = attributes[key]

    interpreter._get_np_dtype = numpy_type_of
    core.block_type.__init__ = initialise


def share_shapes() -> None:
    """Build the shape of a tensor, which is a typed tuple of constants, once per block shape."""
    build, types = core._type_for_tuple_values, {}

    def type_of(values: Any, fields: Any = None) -> Any:
        shape = tuple([value.value if type(value) is core.constexpr else value for value in values])
        if fields is not None or not all(type(size) is int for size in shape):
            return build(values, fields)
        if shape not in types:
            types[shape] = build(values)
        return types[shape]

    @cache
    def constants(*shape: int) -> Any:
        return core.tuple([core.constexpr(size) for size in shape]), core.constexpr(int(np.prod(shape)))

    def initialise(tensor: Any, handle: Any, type: Any) -> None:
        known = type.__dict__.get("of_tensors")
        if known is None:
            known = type.of_tensors = type.scalar, *(constants(*type.shape) if type.is_block() else constants())
        tensor.handle, tensor.type = handle, type
        tensor.dtype, tensor.shape, tensor.numel = known

    core._type_for_tuple_values = type_of
    core.tensor.__init__ = initialise


def skip_unreported_checks() -> None:
    """Check integers for overflow only in debug mode: otherwise, Triton computes the check but does not report it."""
    check = TritonSemantic.binary_op_sanitize_overflow_impl

    def check_in_debug_mode(semantic: Any, *given: Any) -> None:
        if semantic.builder.options.debug:
            check(semantic, *given)

    TritonSemantic.binary_op_sanitize_overflow_impl = check_in_debug_mode


def leave_equal_shapes() -> None:
    """Return operands of equal shape without comparing their axes one by one."""
    broadcast = TritonSemantic.broadcast_impl_value

    def broadcast_different(semantic: Any, lhs: Any, rhs: Any) -> Any:
        return (lhs, rhs) if lhs.shape is rhs.shape else broadcast(semantic, lhs, rhs)

    TritonSemantic.broadcast_impl_value = broadcast_different


def share_constants() -> None:
    """Convert the number of an operation once per value and type; do not check tensors of one type."""
    check = TritonSemantic.binary_op_type_checking_impl
    converted: dict[Any, Any] = {}

    def check_new(semantic: Any, lhs: Any, rhs: Any, *rules: bool, **named: bool) -> Any:
        if type(lhs) is core.tensor and not named:
            if type(rhs) is core.tensor:
                divides = len(rules) == 4
                if lhs.dtype is rhs.dtype and lhs.shape is rhs.shape and not divides and not lhs.dtype.is_ptr():
                    return lhs, rhs
            elif type(rhs) in (int, float):
                key = type(rhs), rhs, lhs.type.name, rules
                if key not in converted:
                    left, number = check(semantic, lhs, rhs, *rules)
                    if left is not lhs:  # converted as well
                        return left, number
                    converted[key] = number
                return lhs, converted[key]
        return check(semantic, lhs, rhs, *rules, **named)

    TritonSemantic.binary_op_type_checking_impl = check_new


def shorten_calls() -> None:
    """Call operations without checking that a kernel calls them, unwrap and compare the usual types first."""
    unwrap, decorated = core._unwrap_if_constexpr, core.add.__code__

    def unwrap_usual(value: Any) -> Any:
        kind = type(value)
        if kind is core.constexpr:
            return value.value
        return value if kind is core.tensor or kind is int or kind is core.dtype else unwrap(value)

    def equal(kind: Any, other: Any) -> bool:
        return kind is other or (isinstance(other := unwrap_usual(other), core.dtype) and kind.name == other.name)

    def replace(place: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        semantic = TritonSemantic(builder)
        operation = member.__wrapped__ if member.__code__ is decorated else member

        def call(*given: Any, **named: Any) -> Any:
            named["_semantic"] = semantic
            return operation(*given, **named)

        scope.set_attr(place, name, call)

    core._unwrap_if_constexpr = unwrap_usual
    core.dtype.__eq__ = equal
    interpreter._patch_attr = replace
