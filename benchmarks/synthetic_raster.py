"""A synthetic raster of any size that is computed when it is read: scores of 8 labels, like a network's."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
N_LABELS = 8
PATCH = 90  # side in pixels of the squares of one label
LEAD, SPREAD = 1.0, 3.0  # score added to the true label, and width of the uniform noise


@dataclass(frozen=True)
class SyntheticRaster:
    """Scores (H, W, 8) in single precision that depend on the seed and the position only."""

    height: int
    width: int
    seed: int = 0

    @property
    def dtype(self) -> Any:
        """Data type, float32."""
        return np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (H, W, 8)."""
        return self.height, self.width, N_LABELS

    @property
    def ndim(self) -> int:
        """Number of axes, 3."""
        return 3

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        rows, columns = (np.arange(*part.indices(n)) for part, n in zip(index, (self.height, self.width), strict=False))
        truth = hashed(rows[:, None] // PATCH * 100_003 + columns[None] // PATCH + self.seed) % np.uint32(N_LABELS)
        scores = np.empty((len(rows), len(columns), N_LABELS), np.float32)
        for band in range(0, len(rows), 64):  # bands limit the memory of the integers
            sites = rows[band : band + 64, None] * self.width + columns[None]
            noise = hashed(sites[..., None] * N_LABELS + np.arange(N_LABELS) + self.seed)
            scores[band : band + 64] = noise * np.float32(SPREAD / 2**32)
        np.put_along_axis(scores, truth[..., None].astype(np.int64), LEAD + _at(scores, truth), axis=2)
        return scores


def _at(scores: Array, labels: Array) -> Array:
    return np.take_along_axis(scores, labels[..., None].astype(np.int64), axis=2)


def hashed(numbers: Array) -> Array:
    """Return a pseudorandom 32-bit integer for each 64-bit integer."""
    n = numbers.astype(np.uint64)
    x = (n ^ n >> np.uint64(32)).astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    return x ^ x >> np.uint32(16)
