"""LocPMAP climb for two labels and Potts weights of any sign on a 4-connected grid, samples packed into words."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.perturbation import GridClimb
from locpmap.kernels.reference.climb_potts import climb_potts


def climb_bits(climb: GridClimb, n_samples: int, words: Array) -> Array:
    """Fill ``words`` (n, S) uint64, bit s for sample ``first_sample + s``; return the last sweeps with changes."""
    labels = np.zeros((*words.shape, n_samples), np.uint8)
    sweeps = climb_potts(climb, labels)
    words[...] = (labels.astype(np.uint64) << np.arange(n_samples, dtype=np.uint64)).sum(axis=2, dtype=np.uint64)
    return sweeps
