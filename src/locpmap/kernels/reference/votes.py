"""The number of samples with each label, per site."""

import numpy as np

from locpmap.arrays import Array


def votes(labels: Array, totals: Array, begin: int, stop: int) -> None:
    """Add one to ``totals[n, i, labels[n, i, s]]`` for sites begin..stop; labels (n, S, R), totals (n, S, L)."""
    for s in range(labels.shape[2]):
        picked = labels[:, begin:stop, s].astype(np.int64)[:, :, None]
        part = totals[:, begin:stop]
        np.put_along_axis(part, picked, np.take_along_axis(part, picked, axis=2) + 1, axis=2)
