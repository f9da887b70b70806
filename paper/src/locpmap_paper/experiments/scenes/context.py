"""Context features of the atoms of an image: means over segments, boxes, rows and columns.

The same features are computed from the image and from the predictions of a first classifier (auto-context: Tu,
CVPR 2008).  They are invariant to mirroring the scene.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.experiments.scenes.patch_words import STRIDE, PatchWords, enlarge, halve
from locpmap_paper.experiments.scenes.pixel_features import Channels, Image, pixel_features
from locpmap_paper.experiments.scenes.regions import Numbers, Pieces

Array = npt.NDArray[Any]

NEAR = (10, 30)  # half sides of boxes around an atom in pixels
FAR = ((30, 15), (80, 30))  # (distance, half side) of boxes above, below, left and right
BAND = (5, 10)  # half height of row bands, half width of column bands


def appearance(image: Image, regions: Numbers, words: PatchWords) -> Channels:
    """Return features (n_atoms, F) of an image (H, W, 3) with regions (4, H, W); F is 564 + 5 per word."""
    channels = pixel_features(image)
    everything = np.concatenate([channels, enlarge(words(image), STRIDE, channels.shape[:2])], axis=-1)
    n_channels = channels.shape[-1]

    atoms = Pieces(regions[0])
    places = Boxes(everything, atoms.centres())
    parts = [_position(atoms), atoms.means(channels), *places.near()]
    parts += [part[:, :n_channels] for part in (*places.far(), *places.bands())]
    for segments in map(Pieces, regions[1:]):
        own = segments.at(atoms.first_pixels())
        parts += [segments.means(everything)[own], segments.shapes()[own]]
    return np.concatenate(parts, axis=1)


def auto_context(probability: Channels, regions: Numbers) -> Channels:
    """Return features (n_atoms, 18 · L) from a first classifier's probabilities (n_atoms, L)."""
    atoms = Pieces(regions[0])
    first, image = atoms.first_pixels(), probability[regions[0]]
    places = Boxes(image, atoms.centres())
    parts = [probability, *places.near(), *places.far(), *places.bands()]
    parts += [segments.means(image)[segments.at(first)] for segments in map(Pieces, regions[1:])]
    parts.append(np.broadcast_to(image.mean(axis=(0, 1)), probability.shape))
    return np.concatenate(parts, axis=1)


def _position(atoms: Pieces) -> Channels:
    """Return features (n, 2): relative height in the image, and relative distance from its middle column."""
    height, width = atoms.of_pixel.shape
    row, column = (atoms.centres() / (height, width)).T
    return np.column_stack([row, np.abs(column - 0.5)]).astype(np.float32)


class Boxes:
    """Means of values (H, W, C) over rectangles positioned relative to points (n, 2) and clipped at the border.

    The means are computed from 2 × 2 means by an integral image: O(C) per rectangle, 2 H W C bytes.
    """

    def __init__(self, values: Channels, points: Channels) -> None:
        coarse = halve(values)
        self.shape = coarse.shape[:2]
        self._sums = np.zeros((self.shape[0] + 1, self.shape[1] + 1, values.shape[-1]))
        coarse.cumsum(axis=0, dtype=np.float64, out=self._sums[1:, 1:])
        self._sums.cumsum(axis=1, out=self._sums)
        self._points = (points + 0.5) / 2  # coordinates of pixel centres

    def near(self) -> list[Channels]:
        """Return means over boxes around the points."""
        return [self._around(0, 0, half) for half in NEAR]

    def far(self) -> list[Channels]:
        """Return means over boxes above and below, and the mean and absolute difference of left and right boxes."""
        found = []
        for distance, half in FAR:
            left, right = self._around(0, -distance, half), self._around(0, distance, half)
            found += [self._around(-distance, 0, half), self._around(distance, 0, half)]
            found += [(left + right) / np.float32(2), np.abs(left - right)]
        return found

    def bands(self) -> list[Channels]:
        """Return means over the whole row, and over the column above and below the point."""
        row, column = self._points.T
        half_row, half_column = (half / 2 for half in BAND)
        height, width = self.shape
        return [
            self._mean(row - half_row, row + half_row, 0 * column, 0 * column + width),
            self._mean(0 * row, row + 1, column - half_column, column + half_column),
            self._mean(row, 0 * row + height, column - half_column, column + half_column),
        ]

    def _around(self, down: float, across: float, half: float) -> Channels:
        row, column = self._points[:, 0] + down / 2, self._points[:, 1] + across / 2
        return self._mean(row - half / 2, row + half / 2, column - half / 2, column + half / 2)

    def _mean(self, top: Array, bottom: Array, left: Array, right: Array) -> Channels:
        """Return means over rectangles of at least one cell; rectangles outside are moved to the border."""
        height, width = self.shape
        top = np.clip(np.rint(top).astype(int), 0, height - 1)
        left = np.clip(np.rint(left).astype(int), 0, width - 1)
        bottom = np.clip(np.rint(bottom).astype(int), top + 1, height)
        right = np.clip(np.rint(right).astype(int), left + 1, width)
        sums = self._sums
        total = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
        return (total / ((bottom - top) * (right - left))[:, None]).astype(np.float32)
