"""Operations on machine words with one bit per sample."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from locpmap.kernels.numba.compiling import inlined, inner

_ZERO = np.uint64(0)
_EACH, _GATHER = np.uint64(0x0101010101010101), np.uint64(0x0102040810204080)
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)


def _trailing_zeros(context, x):
    """Return the position of the lowest set bit, in one instruction."""

    def code(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), code


def _count_bits(context, x):
    """Return the number of set bits, in the fewest instructions of the processor."""

    def code(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), code


trailing_zeros: Any = intrinsic(_trailing_zeros)
count_bits: Any = intrinsic(_count_bits)


@inlined
def bit_mask(flags, begin, n, shift):
    """Collect bit ``shift`` of n bytes into a mask; the bytes are read as words from ``flags[begin]`` on."""
    mask = _ZERO
    for j in range((n + 7) >> 3):
        byte = (((flags[begin + j] >> np.uint64(shift)) & _EACH) * _GATHER) >> np.uint64(56)
        mask |= byte << np.uint64(8 * j)
    return mask


@inlined
def zero_bytes(x):
    """Return a mask with bit j set if byte j of x is 0."""
    nonzero = ((x & _SEVEN) + _SEVEN) | x | _SEVEN
    return ((~nonzero >> np.uint64(7)) * _GATHER) >> np.uint64(56)


@inner
def all_zero(row):
    """Return whether every byte of a row is 0; without a branch, so that the loop vectorises."""
    found = np.uint8(0)
    for i in range(len(row)):
        found |= row[i]
    return found == 0
