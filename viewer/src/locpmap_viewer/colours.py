"""Colour maps of numbers, and PNG pictures of labels, numbers and photographs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.formats import label_outline

VOID = 255  # unknown label, which is transparent in pictures
# Colours of values from 0 to 1; lightness increases monotonically.
RAMPS = {
    "probability": ("#12233f", "#1d4e79", "#23808c", "#4fb286", "#a8d97a", "#f6f3b0"),
    "doubt": ("#14101f", "#40195f", "#8a2a6b", "#d0485a", "#f58a4b", "#fbe3a2"),
}


def hexadecimal(colours: np.ndarray) -> list[str]:
    """Convert colours (L, 3) to strings such as "#3f7fbf".

    >>> hexadecimal(np.array([[63, 127, 191]]))
    ['#3f7fbf']
    """
    return ["#" + bytes(row).hex() for row in colours.astype(np.uint8).tolist()]


def map_picture(labels: np.ndarray, colours: np.ndarray) -> bytes:
    """Return labels (H, W) as a PNG with a palette."""
    return _palette_png(labels.astype(np.uint8), colours)


def coloured(labels: np.ndarray, colours: np.ndarray, *, outlined: bool = False) -> bytes:
    """Return labels (H, W) as a PNG in colours, with white outlines if ``outlined``; VOID is transparent."""
    from PIL import Image

    table = np.full((256, 4), 255, np.uint8)
    table[: len(colours), :3] = colours
    table[VOID, 3] = 0
    pixels = table[labels]
    if outlined:
        pixels[label_outline(labels)] = 255
    return _encoded(Image.fromarray(pixels))


def number_picture(values: np.ndarray, ramp: str) -> bytes:
    """Return values (H, W) in [0, 1] as a PNG in the colours of a ramp."""
    anchors = np.array([list(bytes.fromhex(name[1:])) for name in RAMPS[ramp]], float)
    at = np.linspace(0, len(anchors) - 1, 256)
    table = np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, k]) for k in range(3)], axis=1)
    indices = np.rint(255 * np.clip(values, 0, 1)).astype(np.uint8)
    return _palette_png(indices, np.rint(table).astype(np.uint8))


def photograph(image: np.ndarray) -> bytes:
    """Return an image (H, W) or (H, W, 3) of any range as an 8-bit PNG."""
    from PIL import Image

    return _encoded(Image.fromarray(displayed(image)))


def displayed(image: np.ndarray) -> npt.NDArray[np.uint8]:
    """Convert an image to uint8; other types are rescaled from their minimum and maximum to 0 and 255.

    >>> displayed(np.array([[0, 500], [1000, 250]], np.uint16)).tolist()
    [[0, 128], [255, 64]]
    """
    if image.dtype == np.uint8:
        return image
    values = image.astype(np.float64)
    low, high = values.min(), values.max()
    return np.rint(255 * (values - low) / max(high - low, 1e-12)).astype(np.uint8)


def _palette_png(indices: np.ndarray, colours: np.ndarray) -> bytes:
    from PIL import Image

    picture = Image.fromarray(indices).convert("P")
    picture.putpalette(np.ascontiguousarray(colours).tobytes())
    return _encoded(picture)


def _encoded(picture: Any) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG", compress_level=1)  # fast: the connection is local
    return content.getvalue()
