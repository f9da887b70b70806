"""Bilinear resizing to a larger grid, for NumPy arrays and for tensors."""

from typing import Any

import numpy as np

from locpmap.arrays import is_tensor, place_like


def resize(scores: Any, height: int, width: int) -> Any:
    """Resize scores (N, h, w, K) to (N, H, W, K), where H >= h and W >= w; O(N · H · W · K).

    Values are interpolated between pixel centres and constant beyond the outermost centres, as in torch's
    ``interpolate(.., mode="bilinear", align_corners=False)``.

    >>> from locpmap.refining import resize
    >>> resize(np.array([0.0, 1.0]).reshape(1, 1, 2, 1), 1, 4).ravel().tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    return _resize_axis(_resize_axis(scores, 1, height), 2, width)


def _resize_axis(scores: Any, axis: int, length: int) -> Any:
    """Resize one axis to a new length."""
    n_given = scores.shape[axis]
    if n_given == length:
        return scores
    place = np.clip((np.arange(length) + 0.5) * n_given / length - 0.5, 0, n_given - 1)
    low = np.minimum(place.astype(np.int64), max(n_given - 2, 0))
    part = (place - low).astype(np.float32).reshape((-1, *[1] * (3 - axis)))
    below, above, share = (place_like(scores, x) for x in (low, np.minimum(low + 1, n_given - 1), part))
    first = _take(scores, below, axis)
    found = _take(scores, above, axis)
    found -= first
    found *= share
    found += first
    return found


def _take(scores: Any, index: Any, axis: int) -> Any:
    """Return a copy of the indexed rows or columns in C order, which plain indexing does not ensure."""
    return scores.index_select(axis, index) if is_tensor(scores) else np.take(scores, index, axis)
