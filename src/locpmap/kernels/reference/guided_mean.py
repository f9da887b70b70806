"""Mean over pixels of similar colour: ``out_i = Σ_j w_ij v_j / Σ_j w_ij``, ``w_ij = exp(-sharpness · ‖x_i - x_j‖²)``.

j runs over i itself, whose weight is 1, and over the pixels i + step that are inside the image and counted.
"""

from typing import Any

import numpy as np

from locpmap.arrays import Array


def guided_mean(
    values: Array, image: Array, counted: Array, steps: Array, sharpness: Any, out: Array, begin: int, stop: int
) -> None:
    """Fill rows begin..stop of ``out`` (H, W, K) with the means of ``values`` (H, K, W).

    ``image`` (C, H, W) holds the colours x.  Pixels with ``counted`` (H, W) False are excluded from the means of other
    pixels.  ``steps`` (R, 2) are the steps (rows, columns) to neighbours.
    """
    height, width = counted.shape
    for row in range(begin, stop):
        for column in range(width):
            total, weights = values[row, :, column].astype(np.float64), 1.0
            for down, right in steps:
                y, x = row + down, column + right
                if 0 <= y < height and 0 <= x < width and counted[y, x]:
                    square = ((image[:, row, column] - image[:, y, x]) ** 2).sum()
                    weight = np.exp(-float(sharpness) * float(square))
                    total, weights = total + weight * values[y, :, x], weights + weight
            out[row, column] = total / weights
