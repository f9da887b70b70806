"""Counting the labels of samples, compiled."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def votes(labels, totals, begin, stop):
    """Add one to ``totals[n, i, labels[n, i, s]]`` for sites begin..stop; labels (n, S, R), totals (n, S, L)."""
    for n in range(labels.shape[0]):
        for i in range(begin, stop):
            for s in range(labels.shape[2]):
                totals[n, i, labels[n, i, s]] += 1
