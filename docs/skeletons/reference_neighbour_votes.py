"""Neighbours' labels, counted: the definition.  Copy to ``src/locpmap/kernels/reference/neighbour_votes.py``."""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model


def neighbour_votes(model: Model, labels: Array, counts: Array, lo: int, hi: int, begin: int, stop: int) -> None:
    """Fill ``counts`` (N, S, L): the number of neighbours with each label; labels (N, S)."""
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            around = labels[n, model.neighbour[model.indptr[i] : model.indptr[i + 1]]]
            counts[n, i] = np.bincount(around, minlength=counts.shape[2])
