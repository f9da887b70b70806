"""Recognition of tiles of one raster among calibration images."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locpmap.refining.guaranteeing import warn_of_tiles

BATCHES: dict[str, Callable[[], Any]] = {
    "channels first": lambda: np.moveaxis(np.zeros((6, 3, 8, 9)), 1, -1),
    "channels first, from a file": lambda: np.moveaxis(np.zeros(6 * 3 * 8 * 9).reshape(6, 3, 8, 9), 1, -1),
    "without one channel": lambda: np.zeros((6, 8, 9, 4))[..., :3],
    "without borders": lambda: np.zeros((6, 8, 9, 3))[:, 1:-1, 2:-2],
    "flipped": lambda: np.zeros((6, 8, 9, 3))[:, :, ::-1],
    "images last": lambda: np.moveaxis(np.zeros((8, 9, 6)), -1, 0),
    "images last, of colours": lambda: np.moveaxis(np.zeros((8, 9, 3, 6)), -1, 0),
    "equal images": lambda: np.broadcast_to(np.float64(1), (6, 8, 9)),
}
RASTERS: dict[str, Any] = {
    "grey": np.zeros((40, 50)),
    "colours": np.zeros((40, 50, 3)),
    "from a file": np.zeros(40 * 50 * 3).reshape(40, 50, 3),
    "channels first": np.moveaxis(np.zeros((3, 40, 50)), 0, -1),
    "turned": np.zeros((50, 40)).T,
}


@pytest.mark.parametrize("case", BATCHES)
def test_images_of_a_batch_are_no_tiles(case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_tiles(list(BATCHES[case]()))


@pytest.mark.parametrize("case", RASTERS)
def test_tiles_are_recognised(case: str) -> None:
    tiles = [RASTERS[case][top : top + 20, left : left + 10] for top in (0, 20) for left in range(0, 50, 10)]
    with pytest.warns(UserWarning, match="tiles of a raster"):
        warn_of_tiles(tiles)
