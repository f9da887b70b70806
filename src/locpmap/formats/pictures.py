"""PNG files of label maps, pictures of results, and overlays of labels on their image."""

from __future__ import annotations

import colorsys
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array
from locpmap.formats.atomic import PathLike, write_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


OPACITY = 0.55  # opacity in an overlay of a label with entropy 0
LEAST_SIDE = 160  # smallest side of a panel in pixels; smaller results are enlarged
MOST_SIDE = 2048  # of a slice of a volume
GAP, CAPTION = 8, 18  # pixels between panels, and above them
# Colours at least 21 apart in CIELAB, and at least 6 as people with red-green colour blindness see them.
CHOSEN = (
    *("3f7fbf", "e9b44c", "5aa469", "c8553d", "7b5ea7", "46b5b0", "d982a6", "8f7a5c"),
    *("a9c25d", "2f4b7c", "f08a4b", "93a8c2", "105040", "10f0a0", "506010", "1040b0"),
    *("e080f0", "b02060", "c0e0d0", "1080f0", "703020", "d0b0f0", "a07010", "407080"),
    *("a0f080", "f09080", "30f0f0", "e0e050", "709080", "a0a010", "40d0a0", "603090"),
)
GOLDEN = 0.618033988749895  # golden ratio: hues at multiples of it, modulo 1, are well separated


def write_label_map(path: PathLike, labels: Array, n_labels: int) -> None:
    """Write labels (H, W) as palette indices, or as 16-bit grey values for more than 256 labels.

    Labels of -1 become 255, which is black.
    """
    from PIL import Image

    if n_labels > 256:
        _write(path, Image.fromarray(labels.astype(np.uint16)))
        return
    image = Image.fromarray(labels.astype(np.uint8)).convert("P")
    colours = label_colours(n_labels)
    colours[255:] = 0
    image.putpalette(colours.tobytes())
    _write(path, image)


def write_picture(path: PathLike, labels: Array, probability: Array | None, n_labels: int) -> None:
    """Write a picture of three panels: the labels in colours, their probability p, and their variance p(1 - p).

    ``labels`` is (H, W); ``probability`` is (H, W, L), or None for the first panel alone.  Results smaller than 160
    pixels are enlarged by an integer factor.
    """
    panels = {"labels": label_colours(n_labels)[labels]}
    if probability is not None:
        chosen = np.take_along_axis(probability, labels[:, :, None].astype(np.int64), axis=2)
        panels["probability, white: 1"] = _in_grey(chosen)
        panels["variance, white: 1/4"] = _in_grey(4 * chosen * (1 - chosen))
    write_panels(path, panels, columns=len(panels))


def write_panels(path: PathLike, panels: dict[str, Array], columns: int, legend: Sequence[str] = ()) -> None:
    """Write pictures (H, W, 3) uint8 of one size in rows, each below its name; small ones are enlarged.

    A legend with a name for every label (empty names are left out) comes below.
    """
    from PIL import Image, ImageDraw

    height, width, _ = next(iter(panels.values())).shape
    times = max(1, LEAST_SIDE // max(height, width))
    across, down = max(width * times, LEAST_SIDE) + GAP, height * times + CAPTION
    full, above = columns * across - GAP, -(-len(panels) // columns) * down
    places, rows = _legend_places(legend, full)
    sheet = Image.new("RGB", (full, above + CAPTION * rows), "white")
    pen = ImageDraw.Draw(sheet)
    for colour, name, place in zip(label_colours(len(legend) or 1).tolist(), legend, places, strict=False):
        if place is not None:
            left, top = place[0], above + CAPTION * place[1]
            pen.rectangle((left, top + 4, left + 10, top + 14), fill=tuple(colour))
            pen.text((left + 15, top + 2), name, fill="black")
    for k, (name, pixels) in enumerate(panels.items()):
        left, top = k % columns * across, k // columns * down
        panel = Image.fromarray(pixels).resize((width * times, height * times), Image.Resampling.NEAREST)
        sheet.paste(panel, (left, top + CAPTION))
        pen.text((left, top + 2), name, fill="black")
    _write(path, sheet)


def _legend_places(names: Sequence[str], width: int) -> tuple[list[tuple[int, int] | None], int]:
    """Return the left side and the row of every name in a legend, None for empty ones, and the number of rows."""
    from PIL import ImageFont

    font, left, row, places = ImageFont.load_default(), 0, 0, []
    for name in names:
        length = 15 + int(font.getlength(name)) + 2 * GAP if name else 0
        if left and left + length > width:
            left, row = 0, row + 1
        places.append((left, row) if name else None)
        left += length
    return places, row + 1 if any(names) else 0


def write_overlay(path: PathLike, image: Array, labels: Array, entropy: Array, n_labels: int) -> None:
    """Write a PNG of the grey image with coloured labels, which fade with entropy, and white outlines.

    ``image`` is (H, W) or (H, W, C).  ``labels`` and ``entropy`` are (H, W); label -1 is not drawn.
    """
    from PIL import Image

    _write(path, Image.fromarray(_overlay(image, labels, entropy, n_labels)), compress_level=3)


def write_slices(
    path: PathLike,
    scan: Array,
    labels: Array,
    entropy: Array,
    n_labels: int,
    spacing: tuple[float, ...],
    names: Sequence[str] | None = None,
) -> None:
    """Write overlays of three slices of a volume (X, Y, Z), in proportion to the sides of its voxels, and a legend.

    The slices are those of `widest_slice`. The first of their two axes points to the right, and the second one up.
    A slice has at most 2048 pixels along a side.
    """
    longest = max(n * side for n, side in zip(labels.shape, spacing, strict=True))
    pixel, panels, seen = max(min(spacing), longest / MOST_SIDE), {}, np.zeros(n_labels + 1, bool)
    for axis, name in enumerate("xyz"):
        chosen = widest_slice(labels, axis)
        image, numbers, doubt = (np.rot90(values.take(chosen, axis)) for values in (scan, labels, entropy))
        seen[numbers] = True  # the last one at -1
        across, up = (side / pixel for side in np.delete(spacing, axis))
        shown = _overlay(image, numbers, doubt, n_labels)
        rows, columns = (
            (np.arange(max(1, round(n * times))) / times).astype(int).clip(0, n - 1)
            for n, times in zip(shown.shape, (up, across), strict=False)
        )
        panels[f"{name} = {chosen} of 0 to {labels.shape[axis] - 1}"] = shown[np.ix_(rows, columns)]
    height, width = (max(panel.shape[k] for panel in panels.values()) for k in (0, 1))
    for name, panel in panels.items():
        room = (0, height - len(panel)), (0, width - panel.shape[1]), (0, 0)
        panels[name] = np.pad(panel, room, constant_values=255)
    titles = map(str, range(n_labels)) if names is None else (f"{k} {name}" for k, name in enumerate(names))
    write_panels(path, panels, columns=3, legend=[title if seen[k] else "" for k, title in enumerate(titles)])


def widest_slice(labels: Array, axis: int) -> int:
    """Return the slice along an axis that has the most sites without the most frequent label; of several, the middle.

    >>> widest_slice(np.array([[[0, 0, 0]], [[0, 1, 0]], [[0, 1, 1]]]), 0)
    2
    """
    inside = labels >= 0
    frequent = np.bincount(labels[inside]).argmax() if inside.any() else 0
    counts = np.moveaxis(inside & (labels != frequent), axis, 0).reshape(labels.shape[axis], -1).sum(1)
    largest = np.flatnonzero(counts == counts.max())
    return int(largest[len(largest) // 2])


def _overlay(image: Array, labels: Array, entropy: Array, n_labels: int) -> Array:
    """Return the picture of `write_overlay`, (H, W, 3) uint8."""
    grey = _brightness(image)[..., None]
    sure = 1 - entropy.astype(np.float32) / math.log(n_labels)
    opacity = np.where(labels >= 0, OPACITY * sure, 0)[..., None]
    colours = label_colours(n_labels)[np.maximum(labels, 0)].astype(np.float32)
    picture = grey + opacity * (colours - grey)
    picture[label_outline(labels)] = 255
    return np.clip(picture + 0.5, 0, 255).astype(np.uint8)


def label_colours(n_labels: int) -> npt.NDArray[np.uint8]:
    """Return a distinct colour for each label.

    Args:
        n_labels (int): Number of labels L, at least 1.

    Returns:
        array: Red, green and blue from 0 to 255, (L, 3) uint8.

    Example:
        >>> from locpmap.formats import label_colours
        >>> label_colours(2).tolist()
        [[63, 127, 191], [233, 180, 76]]
    """
    rows = [tuple(bytes.fromhex(name)) for name in CHOSEN[:n_labels]]
    for k in range(len(CHOSEN), n_labels):
        parts = colorsys.hsv_to_rgb((k * GOLDEN) % 1, 0.45 + 0.2 * (k % 3 == 0), 0.85 - 0.25 * (k // 7 % 2))
        rows.append(tuple(int(255 * part) for part in parts))
    return np.array(rows, np.uint8)


def label_outline(labels: Array) -> npt.NDArray[np.bool_]:
    """Return the outline of the labels of an image.

    Args:
        labels (array): Labels (H, W).

    Returns:
        array: True where the right or the lower neighbour has another label, (H, W).

    Example:
        >>> from locpmap.formats import label_outline
        >>> label_outline(np.array([[0, 0, 1], [0, 0, 1]])).tolist()
        [[False, True, False], [False, True, False]]
    """
    border = np.zeros(labels.shape, bool)
    border[:, :-1] |= labels[:, 1:] != labels[:, :-1]
    border[:-1] |= labels[1:] != labels[:-1]
    return border


def _in_grey(values: Array) -> Array:
    """Convert values (H, W, 1) in [0, 1] to grey (H, W, 3) uint8."""
    return np.repeat(np.clip(255 * values + 0.5, 0, 255).astype(np.uint8), 3, axis=2)


def _brightness(image: Array) -> Array:
    """Return the mean of up to three channels, (H, W) float32 from 0 to 255; rescale images that are not uint8."""
    values = image.astype(np.float32)
    grey = values if image.ndim == 2 else values[..., :3].mean(-1)
    if image.dtype == np.uint8:
        return grey
    low, high = float(grey.min()), float(grey.max())
    return (grey - low) * (255 / (high - low) if high > low else 0.0)


def _write(path: PathLike, image: Image, **options: Any) -> None:
    content = io.BytesIO()
    image.save(content, "PNG", **options)
    write_bytes(path, [content.getvalue()])
