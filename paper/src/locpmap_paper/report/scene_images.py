"""Scenes as images to draw: cut out of their canvas, with a colour per label and errors marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Level

Image = npt.NDArray[Any]

# Okabe and Ito's palette, which colour-blind readers can tell apart, each shade where it looks most at home; black is
# lightened to a dark grey.
COLOURS = ("#56B4E9", "#009E73", "#5A5A5A", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#E69F00")
NO_LABEL = "#E1E5EA"
WRONG = "#D4005A"
EMPTY = 127  # grey, where the canvas holds no scene


def colour_of(label: int) -> str:
    """The colour of a label; from the ninth on they begin again."""
    return COLOURS[label % len(COLOURS)]


def windows(pictures: Pictures, level: Level) -> list[tuple[slice, slice]]:
    """Where each scene lies on its canvas: what is no grey or has a label; the whole canvas where nothing is."""
    there = (pictures[f"{level.name}/input"] != EMPTY).any(axis=3)
    for name, labels in pictures.items():
        if name.startswith(f"{level.name}/") and name.endswith(("/truth", "/labels")):
            there |= labels != -1
    return [(_extent(scene.any(axis=1)), _extent(scene.any(axis=0))) for scene in there]


def _extent(there: npt.NDArray[np.bool_]) -> slice:
    found = np.flatnonzero(there)
    return slice(int(found[0]), int(found[-1]) + 1) if found.size else slice(0, len(there))


def coloured(labels: Image, n_labels: int) -> Image:
    """Labels (H, W) as colours (H, W, 3); what is none of the labels stays pale."""
    shades = np.array([_bytes(colour_of(label)) for label in range(n_labels)] + [_bytes(NO_LABEL)], np.uint8)
    known = (labels >= 0) & (labels < n_labels)
    return shades[np.where(known, labels, n_labels).astype(np.intp)]


def errors(labels: Image, truth: Image, n_labels: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which pixels are wrong, and which have a true label at all: others are never counted."""
    known = (truth >= 0) & (truth < n_labels)
    return known & (labels != truth), known


def marked(photograph: Image, wrong: npt.NDArray[np.bool_], known: npt.NDArray[np.bool_]) -> Image:
    """The photograph in pale grey, wrong pixels in a strong colour, those without a true label blank."""
    grey = 150 + photograph.mean(axis=2, keepdims=True) * (100 / 255)
    image = np.repeat(grey.astype(np.uint8), 3, axis=2)
    image[wrong] = _bytes(WRONG)
    image[~known] = _bytes(NO_LABEL)
    return image


def legend_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names and colours of the labels, and of what has none."""
    return [*((name, colour_of(label)) for label, name in enumerate(names)), ("no label", NO_LABEL)]


def _bytes(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))
