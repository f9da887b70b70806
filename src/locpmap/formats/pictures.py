"""Label maps and pictures of results, as PNG files."""

from __future__ import annotations

import colorsys
import io
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array
from locpmap.formats.atomic import PathLike, write_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


LEAST_SIDE = 160  # pixels that a panel takes at least; smaller results are enlarged
GAP, CAPTION = 8, 18  # pixels between panels, and above them
GOLDEN = 0.618033988749895  # steps of this share of the colour circle never come close to one another


def write_label_map(path: PathLike, labels: Array, n_labels: int) -> None:
    """Labels (H, W) as palette entries, in colours; as grey values of 16 bits if there are more than 256."""
    from PIL import Image

    if n_labels > 256:
        _write(path, Image.fromarray(labels.astype(np.uint16)))
        return
    image = Image.fromarray(labels.astype(np.uint8)).convert("P")
    image.putpalette(label_colours(n_labels).tobytes())
    _write(path, image)


def write_picture(path: PathLike, labels: Array, probability: Array | None, n_labels: int) -> None:
    """Panels side by side: labels (H, W) in colours, the probability p of the label chosen, and its p(1 - p).

    Results of less than 160 pixels are enlarged by a whole factor.  ``probability`` is (H, W, L), or None.
    """
    from PIL import Image, ImageDraw

    panels = {"labels": label_colours(n_labels)[labels]}
    if probability is not None:
        chosen = np.take_along_axis(probability, labels[:, :, None].astype(np.int64), axis=2)
        panels["probability, white: 1"] = _in_grey(chosen)
        panels["variance, white: 1/4"] = _in_grey(4 * chosen * (1 - chosen))
    height, width = labels.shape
    times = max(1, LEAST_SIDE // max(height, width))
    across, down = max(width * times, LEAST_SIDE), height * times
    sheet = Image.new("RGB", (len(panels) * (across + GAP) - GAP, down + CAPTION), "white")
    pen = ImageDraw.Draw(sheet)
    for k, (name, pixels) in enumerate(panels.items()):
        panel = Image.fromarray(pixels).resize((width * times, height * times), Image.Resampling.NEAREST)
        sheet.paste(panel, (k * (across + GAP), CAPTION))
        pen.text((k * (across + GAP), 2), name, fill="black")
    _write(path, sheet)


def label_colours(n_labels: int) -> npt.NDArray[np.uint8]:
    """A colour for each label, (L, 3): black, then hues that differ from those before.

    >>> label_colours(3).tolist()
    [[0, 0, 0], [57, 107, 229], [157, 229, 57]]
    """
    rows = [(0.0, 0.0, 0.0)]
    rows += [colorsys.hsv_to_rgb((k * GOLDEN) % 1, 0.75, 0.9 - 0.25 * (k // 8 % 2)) for k in range(1, n_labels)]
    return np.array([[int(255 * part) for part in row] for row in rows], np.uint8)


def _in_grey(values: Array) -> Array:
    """Values (H, W, 1) of 0 to 1 as (H, W, 3) uint8."""
    return np.repeat(np.clip(255 * values + 0.5, 0, 255).astype(np.uint8), 3, axis=2)


def _write(path: PathLike, image: Image) -> None:
    content = io.BytesIO()
    image.save(content, "PNG")
    write_bytes(path, [content.getvalue()])
