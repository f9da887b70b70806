"""Weighted values of pixels, added to the points of a lattice."""

import numpy as np

from locpmap.arrays import Array


def splat(points: Array, weights: Array, values: Array, out: Array, begin: int, stop: int) -> None:
    """Add ``weights[p, k] · values[p]`` to ``out[points[p, k]]`` for the pixels p in begin..stop and all k."""
    np.add.at(out, points[begin:stop], weights[begin:stop, :, None] * values[begin:stop, None])
