"""Images of scenes for the figures: cropped from their canvas, labels as colours, errors marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Level

Image = npt.NDArray[Any]

# Okabe and Ito's palette for colour-blind readers, assigned to suit the labels; black is lightened to dark grey.
COLOURS = ("#56B4E9", "#009E73", "#5A5A5A", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#E69F00")
NO_LABEL = "#E1E5EA"
WRONG = "#D4005A"
EMPTY = 127  # grey value of the canvas outside the scene


def colour_of(label: int) -> str:
    """Return the colour of a label; colours repeat from the ninth label on."""
    return COLOURS[label % len(COLOURS)]


def windows(pictures: Pictures, level: Level) -> list[tuple[slice, slice]]:
    """Return each scene's bounding box on its canvas: pixels that are not grey or have a label, else the whole."""
    there = (pictures[f"{level.name}/input"] != EMPTY).any(axis=3)
    for name, labels in pictures.items():
        if name.startswith(f"{level.name}/") and name.endswith(("/truth", "/labels")):
            there |= labels != -1
    return [(_extent(scene.any(axis=1)), _extent(scene.any(axis=0))) for scene in there]


def _extent(there: npt.NDArray[np.bool_]) -> slice:
    found = np.flatnonzero(there)
    return slice(int(found[0]), int(found[-1]) + 1) if found.size else slice(0, len(there))


def coloured(labels: Image, n_labels: int) -> Image:
    """Convert labels (H, W) to colours (H, W, 3); invalid labels become pale grey."""
    shades = np.array([_bytes(colour_of(label)) for label in range(n_labels)] + [_bytes(NO_LABEL)], np.uint8)
    known = (labels >= 0) & (labels < n_labels)
    return shades[np.where(known, labels, n_labels).astype(np.intp)]


def errors(labels: Image, truth: Image, n_labels: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return masks of the wrong pixels and of the pixels with a true label, which alone are counted."""
    known = (truth >= 0) & (truth < n_labels)
    return known & (labels != truth), known


def marked(photograph: Image, wrong: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]) -> Image:
    """Return the photograph in pale grey, with wrong pixels coloured and pixels without a true label blank."""
    grey = 150 + photograph.mean(axis=2, keepdims=True) * (100 / 255)
    image = np.repeat(grey.astype(np.uint8), 3, axis=2)
    image[wrong] = _bytes(WRONG)
    image[~known] = _bytes(NO_LABEL)
    return image


def legend_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names and colours of the labels and of "no label"."""
    return [*((name, colour_of(label)) for label, name in enumerate(names)), ("no label", NO_LABEL)]


def _bytes(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))
