"""What an image is like on the whole, found in one pass over it: so that its parts are seen with the same eyes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.graphs.grid import ends_of
from locpmap.refining.model import Colours
from locpmap.refining.weights import STEPS

LEAST_RANGE = 1e-100  # of colours whose squares are still numbers
BAND = 512  # rows that are read at a time, whatever the tiles, so that sums round alike for all of them


@dataclass(frozen=True)
class Palette:
    """The range of an image's channels, and its colours within that range."""

    middle: tuple[float, ...]  # of each channel
    half: float  # of the widest channel's range
    colours: Colours

    def scaled(self, pixels: Array, mask: Array | None) -> Array:
        """Pixels (H, W) or (H, W, C) as refining takes them: (1, C, H, W) from -1 to 1 in single precision."""
        rows = (np.atleast_3d(pixels).astype(np.float64) - self.middle) / self.half
        if mask is not None:
            rows[mask] = 0
        return np.ascontiguousarray(np.moveaxis(rows, -1, 0)[None], np.float32)

    @classmethod
    def of(cls, image: Any, mask: Any = None) -> Palette:
        """Of sources (H, W) or (H, W, C), and (H, W); reads all of them once, a band of rows at a time."""
        low, high, total, total_squares = (np.array(first, float) for first in (np.inf, -np.inf, 0.0, 0.0))
        n_pixels, sums, n_edges = 0, np.zeros(len(STEPS)), np.zeros(len(STEPS))
        origin: Any = 0.0  # that sums of squares begin at: some pixel's colour, so that they keep their digits
        for top in range(0, image.shape[0], BAND):
            band = slice(top, top + BAND + 1)  # and a row to go on with
            rows = np.atleast_3d(np.asarray(image[band])).astype(np.float64)
            valid = np.full(rows.shape[:2], True) if mask is None else ~np.asarray(mask[band])
            if not np.isfinite(rows[valid]).all():
                raise InputError("image contains a number that is not finite, expected finite numbers")
            own = rows[:BAND][valid[:BAND]]
            if len(own):
                if not n_pixels:
                    origin = own[0]
                low, high = np.minimum(low, own.min(0)), np.maximum(high, own.max(0))
            n_pixels += len(own)
            with np.errstate(over="ignore"):  # of which the range will tell
                total, total_squares = total + (own - origin).sum(0), total_squares + ((own - origin) ** 2).sum(0)
                for n, step in enumerate(STEPS):
                    first, second = ends_of(step, *(rows if step[0] else rows[:BAND]).shape[:2])
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
        return cls(tuple((low / 2 + high / 2).tolist()), half, Colours(squares, variance / half**2))
