"""A raster of any size that is made where it is read: scores of 8 labels as a network might give them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
N_LABELS = 8
PATCH = 90  # pixels of a field with one label, along an axis
LEAD, SPREAD = 1.0, 3.0  # of the true label over the others, and the width of the noise


@dataclass(frozen=True)
class SyntheticRaster:
    """Scores (H, W, 8) in single precision, a pure function of the seed and of the place in the raster."""

    height: int
    width: int
    seed: int = 0

    @property
    def dtype(self) -> Any:
        """Single precision."""
        return np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, 8)."""
        return self.height, self.width, N_LABELS

    @property
    def ndim(self) -> int:
        """Three axes."""
        return 3

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        rows, columns = (np.arange(*part.indices(n)) for part, n in zip(index, (self.height, self.width), strict=False))
        truth = hashed(rows[:, None] // PATCH * 100_003 + columns[None] // PATCH + self.seed) % np.uint32(N_LABELS)
        scores = np.empty((len(rows), len(columns), N_LABELS), np.float32)
        for band in range(0, len(rows), 64):  # so that whole numbers take little memory beside the scores
            sites = rows[band : band + 64, None] * self.width + columns[None]
            noise = hashed(sites[..., None] * N_LABELS + np.arange(N_LABELS) + self.seed)
            scores[band : band + 64] = noise * np.float32(SPREAD / 2**32)
        np.put_along_axis(scores, truth[..., None].astype(np.int64), LEAD + _at(scores, truth), axis=2)
        return scores


def _at(scores: Array, labels: Array) -> Array:
    return np.take_along_axis(scores, labels[..., None].astype(np.int64), axis=2)


def hashed(numbers: Array) -> Array:
    """Whole numbers of 32 bits that look random, one for each of 64 bits."""
    n = numbers.astype(np.uint64)
    x = (n ^ n >> np.uint64(32)).astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    return x ^ x >> np.uint32(16)
