"""Numba version of `reference.guided_mean`: means over pixels of similar colour, a row at a time."""

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.softmax_rows import exponentials


@kernel
def guided_mean(values, image, counted, steps, sharpness, out, begin, stop):
    """Fill rows begin..stop of ``out`` (H, W, K); O(K + C) per pixel and step, in loops over columns that vectorise."""
    height, n_labels, width = values.shape
    zero = values.dtype.type(0)
    total = np.empty((n_labels, width), values.dtype)
    weights, weight = np.empty(width, values.dtype), np.empty(width, values.dtype)
    for row in range(begin, stop):
        for k in range(n_labels):
            for column in range(width):
                total[k, column] = values[row, k, column]
        weights[:] = values.dtype.type(1)
        for n in range(len(steps)):
            there, right = row + steps[n, 0], steps[n, 1]
            left, number = max(0, -right), width - abs(right)
            if there < 0 or there >= height or number <= 0:
                continue
            some = weight[:number]
            some[:] = zero
            for c in range(len(image)):
                add_squares(some, image[c, row, left:], image[c, there, left + right :])
            for i in range(number):
                some[i] *= -sharpness
            exponentials(some, zero)
            for i in range(number):
                some[i] = some[i] if counted[there, left + right + i] else zero
                weights[left + i] += some[i]
            for k in range(n_labels):
                add_product(total[k, left:], some, values[there, k, left + right :])
        for column in range(width):
            for k in range(n_labels):
                out[row, column, k] = total[k, column] / weights[column]


@inner
def add_squares(out, a, b):
    """Add ``(a - b)²`` to ``out``, over the length of ``out``."""
    for i in range(len(out)):
        apart = a[i] - b[i]
        out[i] += apart * apart


@inner
def add_product(out, a, b):
    """Add ``a · b`` to ``out``, over the length of ``a``."""
    for i in range(len(a)):
        out[i] += a[i] * b[i]
