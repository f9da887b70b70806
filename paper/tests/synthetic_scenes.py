"""Synthetic scenes for tests without the data."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from locpmap_paper.data.scenes import Scenes


def synthetic_scenes(count: int, square: int = 8) -> Scenes:
    """Return scenes of up to 56 × 72 pixels, with 7 × 9 squares or fewer of grey value 30 · label + 15."""
    rng = np.random.default_rng(0)
    photographs, maps = {}, {}
    for number in range(count):
        height, width = min(56, 7 * square) - number % 3, min(72, 9 * square) - 2 * (number % 2)
        labels = np.kron(rng.integers(0, 8, (7, 9)), np.ones((square, square), np.int8))[:height, :width].astype(
            np.int8
        )
        stream = io.BytesIO()
        image = np.repeat((30 * labels + 15).astype(np.uint8)[..., None], 3, 2)
        Image.fromarray(image).save(stream, "JPEG", quality=100, subsampling=0)
        photographs[f"scene{number}"], maps[f"scene{number}"] = stream.getvalue(), labels
    return Scenes(photographs, maps)
