"""Scores at the pixels of a raster's lattice, read in one pass, so that all tiles are adapted equally."""

from collections.abc import Callable
from typing import Any

import numpy as np

from locpmap.refining.adapting import lattice
from locpmap.scale.box import Box
from locpmap.scale.fractions import BLOCK
from locpmap.scale.reach import Reach
from locpmap.scale.tiling import Tiling

Layers = Callable[[Box], tuple[Any, Any, Any]]


def at_lattice(shape: tuple[int, int, int], margin: int, layers: Layers) -> tuple[Any, Any]:
    """Return scores and guided log means (P, K) on the lattice of a raster, without masked pixels.

    Args:
        shape: Rows, columns and labels of the raster.
        margin: Largest distance of similar pixels.
        layers: Function that returns scores and guided log means (1, h, w, K) of a window, and its mask (h, w) or None.
            Windows without a pixel of the lattice are not read.
    """
    height, width, n_labels = shape
    rows, columns = np.divmod(lattice(height, width), width)
    scores, guided = np.zeros((2, len(rows), n_labels), np.float32)
    counted = np.full(len(rows), True)
    for block in Tiling(height, width, BLOCK, BLOCK, Reach((), 0, margin=(margin, margin))):
        core, window = block.core, block.window
        here = (rows >= core.top) & (rows < core.bottom) & (columns >= core.left) & (columns < core.right)
        if here.any():
            at = rows[here] - window.top, columns[here] - window.left
            *both, mask = layers(window)
            scores[here], guided[here] = (layer[0][at] for layer in both)
            if mask is not None:
                counted[here] = ~mask[at]
    return scores[counted], guided[counted]
