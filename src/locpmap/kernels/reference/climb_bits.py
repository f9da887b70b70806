"""LocPMAP's climb with two labels and Potts weights of any sign on a 4-connected grid, samples packed into words."""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.reference.climb_potts import climb_potts


def climb_bits(
    unary: Array,
    right: Array,
    down: Array,
    temperature: float,
    k0: int,
    k1: int,
    first_image: int,
    first_sample: int,
    n_samples: int,
    start: int,
    given: Array,
    row: int,
    column: int,
    full_width: int,
    max_sweeps: int,
    words: Array,
) -> Array:
    """Fill ``words`` (n, S) uint64: bit s of a word is the label in sample ``first_sample + s``, s < 64.

    The other arguments are those of :func:`climb_potts`.
    Returns the last sweep that changed anything, (n, n_samples).
    """
    labels = np.zeros((*unary.shape[:2], n_samples), np.uint8)
    noise = (temperature, k0, k1, first_image, first_sample)
    sweeps = climb_potts(unary, right, down, *noise, start, given, row, column, full_width, max_sweeps, labels)
    words[...] = (labels.astype(np.uint64) << np.arange(n_samples, dtype=np.uint64)).sum(axis=2, dtype=np.uint64)
    return sweeps
