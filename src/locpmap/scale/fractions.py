"""Predicted area fractions of a whole raster, computed in one pass, so that all tiles have the same presence."""

from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.scoring import softmax
from locpmap.scale.model import TiledModel
from locpmap.scale.reach import Reach
from locpmap.scale.sources import Piece
from locpmap.scale.tiling import Tiling

BLOCK = 1024  # rows and columns read at a time; independent of the tiles, so that sums are rounded equally for all


def predicted_fractions(model: TiledModel, margin: int) -> Array | None:
    """Return the mean softmax of the unaries over unmasked pixels, (L,), as of an image in memory.

    None means that a score is -inf or that all pixels are masked. ``margin`` is the number of rows and columns around a
    pixel that its unaries depend on.
    """
    height, width, n_labels = model.builder.shape
    total, n_pixels = np.zeros(n_labels), 0
    for block in Tiling(height, width, BLOCK, BLOCK, Reach((), 0, margin=(margin, margin))):
        mask, *rest = map(read_piece, model.pieces(block.window))
        core = block.core.within(block.window).slices
        counted = slice(None) if mask is None else ~mask[core]
        unary = model.builder(block.window, mask, *rest).unary.reshape(*block.window.shape, n_labels)
        rows = unary[core][counted].reshape(-1, n_labels)
        if np.isneginf(rows).any():
            return None
        total += softmax(rows).sum(axis=0, dtype=np.float64)
        n_pixels += len(rows)
    return total / n_pixels if n_pixels else None


def read_piece(piece: Any) -> Any:
    """Return a piece of a raster as an array, or None for None."""
    return piece.read() if isinstance(piece, Piece) else None if piece is None else np.asarray(piece)
