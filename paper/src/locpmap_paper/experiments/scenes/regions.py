"""Regions of an image: three segmentations from fine to coarse, and the small atoms that are classified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.experiments.scenes.pixel_features import Channels, Image

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.uint16]

SEGMENTATIONS = ((30, 20), (100, 50), (300, 150))  # (scale, minimum size) of Felzenszwalb and Huttenlocher's method
N_SUPERPIXELS = 300


def segment(image: Image) -> Numbers:
    """Return indices (1 + 3, H, W) of every pixel's atom and of its segments from fine to coarse, each from 0.

    Atoms are the intersections of the finest segments with superpixels of equal size (SLIC).  The segments follow
    edges; the superpixels cut large segments into localised pieces.
    """
    from skimage.segmentation import felzenszwalb, slic

    segments = [felzenszwalb(image, scale, sigma=0.8, min_size=least) for scale, least in SEGMENTATIONS]
    superpixels = slic(image, N_SUPERPIXELS, compactness=10, max_num_iter=5, start_label=0)
    atoms = segments[0] * (superpixels.max() + 1) + superpixels
    return np.stack([np.unique(a, return_inverse=True)[1].reshape(a.shape) for a in (atoms, *segments)]).astype(
        np.uint16
    )


@dataclass(frozen=True)
class Pieces:
    """The regions of one segmentation of an image."""

    of_pixel: Numbers  # (H, W): index of each pixel's region, from 0

    @property
    def sizes(self) -> Array:
        """The number of pixels of each region."""
        return np.bincount(self.of_pixel.ravel())

    def means(self, values: Channels) -> Channels:
        """Return the means (n, C) of pixel values (H, W, C) over the regions."""
        from scipy.sparse import csr_array

        number = self.of_pixel.ravel()
        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        order = np.argsort(number, kind="stable")
        weights = np.repeat(1 / self.sizes, self.sizes).astype(np.float32)
        average = csr_array((weights, order, starts), shape=(len(starts) - 1, number.size))
        return average @ values.reshape(number.size, -1)

    def at(self, pixels: Array) -> Array:
        """Return the regions of pixels given by flat index."""
        return self.of_pixel.ravel()[pixels]

    def first_pixels(self) -> Array:
        """Return the flat index (n,) of each region's first pixel."""
        return np.unique(self.of_pixel, return_index=True)[1]

    def centres(self) -> Channels:
        """Return the mean row and column (n, 2) in pixels."""
        rows, columns = np.indices(self.of_pixel.shape, np.float32)
        return self.means(np.stack([rows, columns], axis=-1))

    def shapes(self) -> Channels:
        """Return features (n, 6): top, bottom, width, number of side borders touched, area fraction, mean row."""
        from scipy.ndimage import find_objects

        height, width = self.of_pixel.shape
        sides = [(down.start, down.stop, across.start, across.stop) for down, across in find_objects(self.of_pixel + 1)]
        top, bottom, left, right = np.array(sides).T
        touched = (left == 0).astype(int) + (right == width)
        fraction, row = self.sizes / self.of_pixel.size, self.centres()[:, 0]
        shapes = [top / height, bottom / height, (right - left) / width, touched, fraction, row / height]
        return np.column_stack(shapes).astype(np.float32)
