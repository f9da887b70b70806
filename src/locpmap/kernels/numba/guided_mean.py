"""Numba version of `reference.guided_mean`: means over pixels of similar colour."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

VANISHED = np.float32(17)  # weights below exp(-17) are lost in rounding next to the pixel's own weight, 1


@njit(nogil=True, cache=True, error_model="numpy")
def guided_mean(values, image, counted, steps, sharpness, out, begin, stop):
    """Fill rows begin..stop of ``out`` (H, W, K); O(K + C) per pixel and step."""
    height, width, n_labels = values.shape
    total = np.empty(n_labels, values.dtype)
    for row in range(begin, stop):
        for column in range(width):
            weights = values.dtype.type(1)
            for k in range(n_labels):
                total[k] = values[row, column, k]
            for n in range(len(steps)):
                down, right = row + steps[n, 0], column + steps[n, 1]
                if down < 0 or down >= height or right < 0 or right >= width or not counted[down, right]:
                    continue
                square = values.dtype.type(0)
                for c in range(image.shape[2]):
                    apart = image[row, column, c] - image[down, right, c]
                    square += apart * apart
                if sharpness * square > VANISHED:
                    continue
                weight = math.exp(-sharpness * square)
                weights += weight
                for k in range(n_labels):
                    total[k] += weight * values[down, right, k]
            for k in range(n_labels):
                out[row, column, k] = total[k] / weights
