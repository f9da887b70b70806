"""Softmax of many short rows."""

import numpy as np

from locpmap.arrays import Array


def softmax_rows(scores: Array, out: Array) -> None:
    """Fill ``out`` (S, L) with the softmax of each row of scores (S, L); with 0 where all scores are -inf."""
    for row, found in zip(scores, out, strict=True):
        top = row.max()
        weights = np.exp(row - top) if top > -np.inf else np.zeros_like(row)
        found[:] = weights / max(weights.sum(), 1)
