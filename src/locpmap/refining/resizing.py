"""Bilinear resizing to a larger grid, for NumPy arrays and for tensors on a GPU alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.arrays import is_tensor, place_like


def resize(scores: Any, height: int, width: int) -> Any:
    """Scores (N, h, w, K) at ``height × width`` pixels, each at least h and w; O(N · H · W · K).

    Pixels are squares whose centres are interpolated, and beyond the outermost centres values stay as they are: torch's
    ``interpolate(.., mode="bilinear", align_corners=False)``.

    >>> resize(np.array([0.0, 1.0]).reshape(1, 1, 2, 1), 1, 4).ravel().tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    return _along(_along(scores, 1, height), 2, width)


def _along(scores: Any, axis: int, length: int) -> Any:
    """One axis at its new length."""
    n_given = scores.shape[axis]
    if n_given == length:
        return scores
    place = np.clip((np.arange(length) + 0.5) * n_given / length - 0.5, 0, n_given - 1)
    low = np.minimum(place.astype(np.int64), max(n_given - 2, 0))
    part = (place - low).astype(np.float32).reshape((-1, *[1] * (3 - axis)))
    below, above, share = (place_like(scores, x) for x in (low, np.minimum(low + 1, n_given - 1), part))
    first = _taken(scores, below, axis)
    found = _taken(scores, above, axis)
    found -= first
    found *= share
    found += first
    return found


def _taken(scores: Any, index: Any, axis: int) -> Any:
    """Those rows or columns, with the memory in the order of the axes, which plain indexing does not give."""
    return scores.index_select(axis, index) if is_tensor(scores) else np.take(scores, index, axis)
