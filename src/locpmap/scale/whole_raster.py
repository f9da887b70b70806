"""Statistics of the whole raster that tiles need: colours, scores on a lattice, and areas of labels.

Each is computed in one pass over blocks whose size does not depend on the tiles, so that all tiles are treated equally
and sums are rounded equally for all tile sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.graphs.grid import ends_of
from locpmap.refining.adapting import lattice
from locpmap.refining.model import Whole
from locpmap.refining.scoring import softmax
from locpmap.refining.weights import STEPS, VOLUME_STEPS
from locpmap.scale.model import TiledModel
from locpmap.scale.sources import read_piece
from locpmap.scale.tiling import Box, Reach, Tiling

LEAST_RANGE = 1e-100  # smallest range of colours whose squares do not underflow
BAND, VOLUME_BAND = 512, 8  # rows of colours read at a time, or planes of a volume
BLOCK, VOLUME_BLOCK = 1024, 64  # rows and columns of scores read at a time, or planes and rows of a volume

Layers = Callable[[Box], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Palette:
    """The range of an image's channels, and colour statistics after scaling to that range."""

    middle: tuple[float, ...]  # centre of each channel's range
    half: float  # half the range of the widest channel
    whole: Whole

    def scaled(self, pixels: Array, mask: Array | None) -> Array:
        """Scale pixels (H, W) or (H, W, C) to [-1, 1]; return (1, C, H, W) in single precision, also of volumes."""
        n_axes = len(STEPS[0]) if len(self.whole.squares) == len(STEPS) else len(VOLUME_STEPS[0])
        rows = (_with_channels(pixels, n_axes) - self.middle) / self.half
        if mask is not None:
            rows[mask] = 0
        return np.ascontiguousarray(np.moveaxis(rows, -1, 0)[None], np.float32)

    @classmethod
    def of(cls, image: Any, mask: Any = None, n_axes: int = 2) -> Self:
        """Compute the palette of an image source (H, W) or (H, W, C) with a mask source (H, W), in one pass.

        With three axes, it is that of a volume (D, H, W) or (D, H, W, C).
        """
        steps: Sequence[tuple[int, ...]] = STEPS if n_axes == 2 else VOLUME_STEPS
        n_rows = BAND if n_axes == 2 else VOLUME_BAND
        low, high, total, total_squares = (np.array(first, float) for first in (np.inf, -np.inf, 0.0, 0.0))
        n_pixels, sums, n_edges = 0, np.zeros(len(steps)), np.zeros(len(steps))
        origin: Any = 0.0  # one pixel's colour, subtracted before squaring to avoid cancellation
        for top in range(0, image.shape[0], n_rows):
            band = slice(top, top + n_rows + 1)  # with the first row of the next band, for the edges between bands
            rows = _with_channels(np.asarray(image[band]), n_axes)
            valid = np.full(rows.shape[:-1], True) if mask is None else ~np.asarray(mask[band])
            if not np.isfinite(rows[valid]).all():
                raise InputError("image contains a number that is not finite, expected finite numbers")
            own = rows[:n_rows][valid[:n_rows]]
            if len(own):
                if not n_pixels:
                    origin = own[0]
                low, high = np.minimum(low, own.min(0)), np.maximum(high, own.max(0))
            n_pixels += len(own)
            with np.errstate(over="ignore"):  # the check of the range below raises
                total, total_squares = total + (own - origin).sum(0), total_squares + ((own - origin) ** 2).sum(0)
                for n, step in enumerate(steps):
                    first, second = ends_of(step, *(rows if step[0] else rows[:n_rows]).shape[:-1])
                    both = valid[first] & valid[second]
                    sums[n] += ((rows[first][both] - rows[second][both]) ** 2).sum()
                    n_edges[n] += both.sum()
        if not n_pixels:
            raise InputError("mask ignores every pixel, expected at least one that takes part")
        half = float((high / 2 - low / 2).max()) or 1.0
        if not LEAST_RANGE < half < 1 / LEAST_RANGE:
            raise InputError(f"image spans {2 * half:.3g}, expected from {LEAST_RANGE} to {1 / LEAST_RANGE}")
        variance = float((total_squares / n_pixels - (total / n_pixels) ** 2).clip(0).sum())
        squares = tuple((sums / n_edges.clip(1) / half**2).tolist())
        return cls(tuple((low / 2 + high / 2).tolist()), half, Whole(squares, variance / half**2))


def _with_channels(pixels: Array, n_axes: int) -> Array:
    """Return pixels in double precision, with an axis of channels."""
    return (pixels if pixels.ndim > n_axes else pixels[..., None]).astype(np.float64)


def _blocks(shape: tuple[int, ...], margin: tuple[int, int]) -> Tiling:
    """Return the blocks of a raster or a volume, with a margin around them."""
    side = BLOCK if len(shape) == 3 else VOLUME_BLOCK
    return Tiling(shape[0], shape[1], side, side, Reach((), 0, margin=margin))


def predicted_fractions(model: TiledModel, margin: tuple[int, int]) -> Array | None:
    """Return the mean softmax of the unaries over unmasked pixels, (L,), as of an image in memory.

    None means that a score is -inf or that all pixels are masked. ``margin`` holds the numbers of rows and columns
    around a pixel that its unaries depend on, or of planes and rows in a volume.
    """
    *_, n_labels = shape = model.builder.shape
    total, n_pixels = np.zeros(n_labels), 0
    for block in _blocks(shape, margin):
        mask, *rest = map(read_piece, model.pieces(block.window))
        core = block.core.within(block.window).slices
        counted = slice(None) if mask is None else ~mask[core]
        unary = model.builder(block.window, mask, *rest).unary.reshape(*block.window.shape, *shape[2:])
        rows = unary[core][counted].reshape(-1, n_labels)
        if np.isneginf(rows).any():
            return None
        total += softmax(rows).sum(axis=0, dtype=np.float64)
        n_pixels += len(rows)
    return total / n_pixels if n_pixels else None


def at_lattice(shape: tuple[int, ...], margin: tuple[int, int], layers: Layers) -> tuple[Any, Any]:
    """Return scores and guided log means (P, K) on the lattice of a raster, without masked pixels.

    Args:
        shape: Rows, columns and labels of the raster, or planes, rows, columns and labels of a volume.
        margin: Largest distances of similar pixels along the first two axes.
        layers: Function that returns scores and guided log means (1, h, w, K) of a window, and its mask (h, w) or None.
            Windows without a pixel of the lattice are not read.
    """
    *size, n_labels = shape
    rows, columns, *rest = np.unravel_index(lattice(*size), size)
    scores, guided = np.zeros((2, len(rows), n_labels), np.float32)
    counted = np.full(len(rows), True)
    for block in _blocks(shape, margin):
        core, window = block.core, block.window
        here = (rows >= core.top) & (rows < core.bottom) & (columns >= core.left) & (columns < core.right)
        if here.any():
            at = rows[here] - window.top, columns[here] - window.left, *(one[here] for one in rest)
            *both, mask = layers(window)
            scores[here], guided[here] = (layer[0][at] for layer in both)
            if mask is not None:
                counted[here] = ~mask[at]
    return scores[counted], guided[counted]
