"""The number of samples with each label, per site."""

import numpy as np

from locpmap.arrays import Array


def votes(labels: Array, totals: Array, first: int, begin: int, stop: int) -> None:
    """Add one to the total of ``labels[n, i, s]`` at sites begin..stop; totals (n, T, L) of sites from ``first`` on."""
    for s in range(labels.shape[2]):
        picked = labels[:, begin:stop, s].astype(np.int64)[:, :, None]
        part = totals[:, begin - first : stop - first]
        np.put_along_axis(part, picked, np.take_along_axis(part, picked, axis=2) + 1, axis=2)
