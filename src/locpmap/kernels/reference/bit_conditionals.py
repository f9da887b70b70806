"""Conditional (Rao-Blackwell) probabilities of samples packed into words: two labels, one bit per sample."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.conditionals import conditionals


def bit_conditionals(model: Model, words: Array, n_samples: int, sums: Array, lo: int, begin: int, stop: int) -> None:
    """Add ``p(· | other labels)`` to ``sums`` (n, S, 2) int64, for Potts models with up to four neighbours per site."""
    labels = (words[:, :, None] >> np.arange(n_samples, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    conditionals(model, labels, sums, lo, begin, stop)
