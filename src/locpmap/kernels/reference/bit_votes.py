"""Counting the labels of samples that are packed into words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def bit_votes(words: Array, n_samples: int, totals: Array, begin: int, stop: int) -> None:
    """Add the samples with label 0 and with label 1 to ``totals`` (n, S, 2) for sites begin..stop; words (n, S)."""
    ones = np.bitwise_count(words[:, begin:stop])
    totals[:, begin:stop, 0] += n_samples - ones.astype(totals.dtype)
    totals[:, begin:stop, 1] += ones
