"""Vectors of eight numbers, one per lane, which the processor handles at once.

Numba's own vectorisation of loops over eight lanes first checks whether arrays overlap, which takes longer than the
loop.  Vectors have the operators of numbers; both operands are vectors of the same type.  Products and sums in single
precision may be rounded once.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic, lower_builtin, models, register_model
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

WIDTH = 8
_INDEX = ir.IntType(32)


class Vector(types.Type):
    """Eight numbers of one type; comparisons give vectors of booleans."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(f"Vector({dtype})")


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, of):
        super().__init__(manager, of, ir.VectorType(_element(of.dtype), WIDTH))


def _element(dtype):
    if dtype is types.boolean:
        return ir.IntType(1)
    return {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}.get(dtype) or ir.IntType(dtype.bitwidth)


FLOATS, DOUBLES, INTS, FLAGS = (Vector(t) for t in (types.float32, types.float64, types.int32, types.boolean))
_LLVM = {vector: ir.VectorType(_element(vector.dtype), WIDTH) for vector in (FLOATS, DOUBLES, INTS, FLAGS)}


def _operation(symbol, of_floats, of_ints):
    """Define an arithmetic operator by names of LLVM's builder, or a comparison by its sign."""
    compares = of_floats in ("<", ">", ">=", "!=", "==")

    @infer_global(symbol)
    class _Typing(AbstractTemplate):
        def generic(self, args, kws):
            fits = len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]
            return signature(FLAGS if compares else args[0], *args) if fits else None

    @lower_builtin(symbol, Vector, Vector)
    def _lower(context, builder, sig, args):
        if compares:
            return (builder.icmp_signed if sig.args[0] == INTS else builder.fcmp_ordered)(of_floats, *args)
        if sig.args[0] == FLOATS:
            return getattr(builder, of_floats)(*args, flags=("contract",))
        return getattr(builder, of_ints if sig.args[0] == INTS else of_floats)(*args)


for _symbol, _of_floats, _of_ints in (
    (operator.add, "fadd", "add"),
    (operator.iadd, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
    (operator.imul, "fmul", "mul"),
    (operator.truediv, "fdiv", ""),
    (operator.and_, "", "and_"),
    (operator.rshift, "", "lshr"),
    (operator.lt, "<", ""),
    (operator.gt, ">", ""),
    (operator.ge, ">=", ""),
    (operator.eq, "==", ""),
    (operator.ne, "!=", ""),
):
    _operation(_symbol, _of_floats, _of_ints)


def _each(builder, value, scalar):
    """Return a vector whose lanes all are ``scalar``."""
    one = builder.insert_element(ir.Constant(value, ir.Undefined), scalar, _INDEX(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INDEX, WIDTH), [0] * WIDTH))


def _pointer(context, builder, array_type, array, index, stored):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), stored.as_pointer())


def _spread(vector):
    def typed(context, x):
        def code(context, builder, sig, args):
            return _each(builder, _LLVM[vector], context.cast(builder, args[0], sig.args[0], vector.dtype))

        return vector(x), code

    return intrinsic(typed)


def _load(vector):
    def typed(context, array, index):
        def code(context, builder, sig, args):
            dtype, index = sig.args[0].dtype, context.cast(builder, args[1], sig.args[1], types.intp)
            stored = ir.VectorType(context.get_data_type(dtype), WIDTH)
            source = _pointer(context, builder, sig.args[0], args[0], index, stored)
            value = builder.load(source, align=dtype.bitwidth // 8)
            if vector is not INTS or dtype.bitwidth == 32:
                return value
            resize = builder.trunc if dtype.bitwidth > 32 else builder.sext if dtype.signed else builder.zext
            return resize(value, _LLVM[INTS])

        return vector(array, index), code

    return intrinsic(typed)


def _store(context, array, index, vector):
    """Write a vector at a position of an array; integers are cut to the size of its elements."""

    def code(context, builder, sig, args):
        dtype, index = sig.args[0].dtype, context.cast(builder, args[1], sig.args[1], types.intp)
        stored, value = ir.VectorType(context.get_data_type(dtype), WIDTH), args[2]
        value = builder.trunc(value, stored) if dtype.bitwidth < sig.args[2].dtype.bitwidth else value
        target = _pointer(context, builder, sig.args[0], args[0], index, stored)
        builder.store(value, target, align=dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, index, vector), code


def _gather(context, table, index):
    """Return ``table[index]`` in every lane."""

    def code(context, builder, sig, args):
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        value = ir.Constant(_LLVM[FLOATS], ir.Undefined)
        for lane in range(WIDTH):
            at = builder.sext(builder.extract_element(args[1], _INDEX(lane)), ir.IntType(64))
            value = builder.insert_element(value, builder.load(builder.gep(data, [at])), _INDEX(lane))
        return value

    return FLOATS(table, index), code


def _select(context, flags, yes, no):
    """Return ``yes`` in lanes whose flag is set, ``no`` in the others."""
    return yes(flags, yes, yes), lambda context, builder, sig, args: builder.select(*args)


def _bits(context, flags):
    """Return flags as the bits of a byte."""
    return types.uint8(flags), lambda context, builder, sig, args: builder.bitcast(args[0], ir.IntType(8))


def _flags(context, bits):
    """Return the bits of a byte as flags."""
    return FLAGS(types.uint8), lambda context, builder, sig, args: builder.bitcast(args[0], _LLVM[FLAGS])


def _rounded(context, x):
    """Return the nearest integers, as numbers of the same type."""

    def code(context, builder, sig, args):
        function = ir.FunctionType(_LLVM[x], [_LLVM[x]])
        name = "llvm.rint.v8f32" if x == FLOATS else "llvm.rint.v8f64"
        return builder.call(builder.module.declare_intrinsic(name, fnty=function), args)

    return x(x), code


def _to_doubles(context, x):
    """Convert integers."""
    return DOUBLES(x), lambda context, builder, sig, args: builder.sitofp(args[0], _LLVM[DOUBLES])


def _times_power_of_two(context, x, exponent):
    """Return x · 2^exponent for numbers that have no extreme exponents: the exponent is added to that of x."""

    def code(context, builder, sig, args):
        whole = builder.shl(builder.fptosi(args[1], _LLVM[INTS]), _each(builder, _LLVM[INTS], _INDEX(23)))
        return builder.bitcast(builder.add(builder.bitcast(args[0], _LLVM[INTS]), whole), _LLVM[FLOATS])

    return FLOATS(x, exponent), code


def _total(context, x):
    """Return the sum of the lanes."""

    def code(context, builder, sig, args):
        total = builder.extract_element(args[0], _INDEX(0))
        for lane in range(1, WIDTH):
            total = builder.fadd(total, builder.extract_element(args[0], _INDEX(lane)))
        return total

    return x.dtype(x), code


floats, doubles, ints = _spread(FLOATS), _spread(DOUBLES), _spread(INTS)
load_floats, load_doubles, load_ints = _load(FLOATS), _load(DOUBLES), _load(INTS)
store: Any = intrinsic(_store)
select: Any = intrinsic(_select)
as_bits: Any = intrinsic(_bits)
as_flags: Any = intrinsic(_flags)
rounded: Any = intrinsic(_rounded)
to_doubles: Any = intrinsic(_to_doubles)
times_power_of_two: Any = intrinsic(_times_power_of_two)
gather: Any = intrinsic(_gather)
total: Any = intrinsic(_total)
