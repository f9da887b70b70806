"""Overlays of labels on their image."""

from __future__ import annotations

import io
import math

import numpy as np

from locpmap.arrays import Array
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.pictures import label_colours

OPACITY = 0.55  # opacity of a label with entropy 0


def write_overlay(path: PathLike, image: Array | None, labels: Array, entropy: Array, n_labels: int) -> None:
    """Write a PNG of the grey image with coloured labels, which fade with entropy, and white outlines.

    ``image`` is (H, W) or (H, W, C), or None for black.  ``labels`` and ``entropy`` are (H, W); label -1 is not drawn.
    """
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(_overlay(image, labels, entropy, n_labels)).save(content, "PNG", compress_level=3)
    write_bytes(path, [content.getvalue()])


def _overlay(image: Array | None, labels: Array, entropy: Array, n_labels: int) -> Array:
    """Return the picture, (H, W, 3) uint8."""
    grey = np.zeros(labels.shape, np.float32) if image is None else _in_grey(image)
    sure = 1 - entropy.astype(np.float32) / math.log(n_labels)
    opacity = np.where(labels >= 0, OPACITY * sure, 0)[..., None]
    colours = label_colours(n_labels)[np.maximum(labels, 0)].astype(np.float32)
    picture = grey[..., None] + opacity * (colours - grey[..., None])
    picture[_outline(labels)] = 255
    return np.clip(picture + 0.5, 0, 255).astype(np.uint8)


def _in_grey(image: Array) -> Array:
    """Return the mean of up to three channels, (H, W) float32 from 0 to 255; rescale images that are not uint8."""
    values = image.astype(np.float32)
    grey = values if image.ndim == 2 else values[..., :3].mean(-1)
    if image.dtype == np.uint8:
        return grey
    low, high = float(grey.min()), float(grey.max())
    return (grey - low) * (255 / (high - low) if high > low else 0.0)


def _outline(labels: Array) -> Array:
    """Return a mask (H, W) of pixels whose right or lower neighbour has another label."""
    border = np.zeros(labels.shape, bool)
    border[:, :-1] |= labels[:, 1:] != labels[:, :-1]
    border[:-1] |= labels[1:] != labels[:-1]
    return border
