"""Numba version of `reference.softmax_rows`, and the softmax of one row, in place.

Double precision uses ``math.exp``.  Single precision uses a polynomial that vectorises and is three times as fast:
``exp x = 2^k · exp r`` with ``|r| <= log(2) / 2``, relative error below 1e-7.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from locpmap.kernels.numba.compiling import inner, kernel

_f = np.float32
_LOG2_E, _LN2_HIGH, _LN2_LOW = _f(1.44269504), _f(0.693359375), _f(-2.12194440e-4)
_ROUND = _f(1.5 * 2**23)  # adding and subtracting this rounds to the nearest integer
_LEAST = _f(-88)  # here k = -127 and the bits of 2^k are those of 0, so this and all smaller values give 0
_C2, _C3, _C4, _C5, _C6, _C7 = (
    _f(c) for c in (0.5, 1.6666665e-1, 4.1665795e-2, 8.3334519e-3, 1.3981999e-3, 1.9875691e-4)
)
BLOCK = 64  # rows
_ONE, _BIAS, _MANTISSA = _f(1), np.int32(127), np.int32(23)


@kernel
def softmax_rows(scores, out):
    """Fill ``out`` (S, L) with the softmax of each row of scores (S, L); with 0 where all scores are -inf.

    A block of rows is transposed, so that the loops over its rows vectorise.
    """
    n_rows, n_labels = scores.shape
    block = np.empty((n_labels, BLOCK), scores.dtype)
    top, total = np.empty(BLOCK, scores.dtype), np.empty(BLOCK, scores.dtype)
    for begin in range(0, n_rows, BLOCK):
        n = min(BLOCK, n_rows - begin)
        top[:] = -np.inf
        total[:] = 0
        for k in range(n_labels):
            row = block[k]
            for i in range(n):
                row[i] = scores[begin + i, k]
            for i in range(n):
                top[i] = max(top[i], row[i])
        for i in range(n):
            top[i] = top[i] if top[i] > -np.inf else 0  # so that -inf minus the maximum is defined
        for k in range(n_labels):
            row = block[k]
            for i in range(n):
                row[i] -= top[i]
            exponentials(row[:n], scores.dtype.type(0))
            for i in range(n):
                total[i] += row[i]
        for i in range(n):
            total[i] = 1 / total[i] if total[i] > 0 else 0
        for k in range(n_labels):
            for i in range(n):
                out[begin + i, k] = block[k, i] * total[i]


@inner
def softmax(row):
    """Replace scores (L,) by ``exp(score) / Σ exp(score)``; at least one must be above -inf."""
    top = row[0]
    for k in range(1, len(row)):
        top = max(top, row[k])
    exponentials(row, top)
    total = row[0]
    for k in range(1, len(row)):
        total += row[k]
    for k in range(len(row)):
        row[k] /= total


def exponentials(row, top):
    """Replace each x by ``exp(x - top)``; no x may exceed ``top``.  Only compiled code can call this function."""
    raise NotImplementedError


@overload(exponentials, jit_options={"error_model": "numpy"})
def _exponentials(row, top):
    return _single if row.dtype == types.float32 else _double


def _double(row, top):
    for k in range(len(row)):
        row[k] = math.exp(row[k] - top)


def _single(row, top):
    for k in range(len(row)):
        x = row[k] - top
        x = x if x > _LEAST else _LEAST
        whole = (x * _LOG2_E + _ROUND) - _ROUND
        r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
        p = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _C2
        power = np.int32((np.int32(whole) + _BIAS) << _MANTISSA)
        row[k] = (p * (r * r) + r + _ONE) * power.view(_f)
