"""How alike two pixels are: what an image says of the edges of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.arrays import namespace
from locpmap.graphs.grid import ends_of


def likeness(image: Any, step: tuple[int, int], mean: float | None = None, masked: Any = None) -> Any:
    """``exp(-d² / 2⟨d²⟩)`` of the distance d of the colours of each site and that a step away, (N, h, w).

    The mean is over the edges of one image and one step, so the units of the image do not matter; in an image of one
    colour all are alike, 1.  O(N · C · S).

    Args:
        image: (N, C, H, W).
        step: Rows down and columns right.
        mean: ⟨d²⟩ of a larger image that this is a part of.
        masked: (N, H, W), True at sites whose edges do not count in the mean; None: nowhere.

    >>> likeness(np.array([[[[0.0, 0.0, 5.0]]]]), (0, 1)).round(4).tolist()
    [[[1.0, 0.3679]]]
    """
    xp = namespace(image)
    first, second = ((slice(None), *end) for end in ends_of(step, *image.shape[2:]))
    squares = xp.zeros_like(image[:, 0][first])
    for channel in range(image.shape[1]):
        difference = image[:, channel][first] - image[:, channel][second]
        difference *= difference
        squares += difference
    if 0 in squares.shape:
        return squares
    counted = None if masked is None else ~(masked[first] | masked[second])
    for n, one in enumerate(squares):  # image by image, so that a batch rounds as its images by themselves do
        typical = _mean(one if counted is None else one[counted[n]]) if mean is None else mean
        if typical > 0:
            one *= np.float32(-0.5 / typical)
    return xp.exp(squares, out=squares)


def _mean(squares: Any) -> float:
    """0 of none."""
    return float(squares.mean()) if 0 not in squares.shape else 0.0
