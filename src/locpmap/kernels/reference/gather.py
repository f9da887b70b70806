"""Weighted sums of a few rows each."""

import numpy as np

from locpmap.arrays import Array


def gather(sources: Array, weights: Array, values: Array, out: Array, begin: int, stop: int) -> None:
    """Add ``Σ_k weights[p, k] · values[sources[p, k]]`` to ``out[p]`` for p in begin..stop."""
    out[begin:stop] += np.einsum("pk,pkl->pl", weights[begin:stop], values[sources[begin:stop]])
