"""Lengths that are known when a kernel is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np


def axes(n_features: int, n_labels: int) -> tuple[Any, Any]:
    """Stand-ins for the two axes, for kernels to take ``len`` of.

    With two labels, loops over one or two things would cost more than what they do.  The length of a tuple is part of
    its type, so that they are unrolled; the length of an array is not, so that other sizes share one compiled kernel.
    """
    sizes = (n_features, n_labels)
    few = [n_labels == 2 and 1 <= size <= 2 for size in sizes]
    features, labels = ((0,) * size if short else np.empty(size) for size, short in zip(sizes, few, strict=True))
    return features, labels
