"""Colour similarity of neighbouring pixels: the edge feature of refinement."""

from typing import Any

import numpy as np

from locpmap.arrays import namespace
from locpmap.graphs.grid import ends_of


def similarity(image: Any, step: tuple[int, int], mean: float | None = None, masked: Any = None) -> Any:
    """Compute ``exp(-d² / 2⟨d²⟩)``, where d is the colour distance between each pixel and the pixel a step away.

    The mean ⟨d²⟩ is over the edges of one image and one step, so the units of the image do not matter. In an image of
    one colour the similarity is 1. Cost: O(N · C · H · W).

    Args:
        image: Colours, (N, C, H, W).
        step: Rows down and columns right.
        mean: ⟨d²⟩ of the whole image, where ``image`` is a window of it.
        masked: Booleans (N, H, W), True at pixels whose edges are excluded from the mean, or None.

    Returns:
        One value per edge, (N, h, w).

    >>> similarity(np.array([[[[0.0, 0.0, 5.0]]]]), (0, 1)).round(4).tolist()
    [[[1.0, 0.3679]]]
    """
    xp = namespace(image)
    first, second = ((..., *end) for end in ends_of(step, *image.shape[2:]))
    squares = xp.square(image[first] - image[second]).sum(1)
    if 0 in squares.shape:
        return squares
    counted = None if masked is None else ~(masked[first] | masked[second])
    for n, one in enumerate(squares):  # image by image, so that rounding does not depend on the batch
        typical = _mean(one if counted is None else one[counted[n]]) if mean is None else mean
        if typical > 0:
            one *= np.float32(-0.5 / typical)
    return xp.exp(squares, out=squares)


def _mean(squares: Any) -> float:
    """Return the mean, 0 for an empty array."""
    return float(squares.mean()) if 0 not in squares.shape else 0.0
