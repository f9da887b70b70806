"""A grid of images of different sizes: a row per scene, a column per kind of image, a legend below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.patches import Patch

from locpmap_paper.report.drawing import Figure, png, styled
from locpmap_paper.report.scene_images import Image

WIDTH = 10.0  # inches: the width of the page
TITLE, LEGEND, GAP = 0.44, 0.34, 0.06  # inches: two title lines, legend line, gap between images
TALLEST = 1.1  # largest ratio of a row's height to a column's width
LARGEST = 3.0  # inches: largest width of a column


@dataclass(frozen=True)
class GridColumn:
    """A column of colours (H, W, 3), or of numbers (H, W) on a fixed scale; label colours are not interpolated."""

    title: str
    images: Sequence[Image]
    colours: str = "gray"
    limits: tuple[float, float] = (0.0, 1.0)
    smooth: bool = True


def draw_grid(columns: Sequence[GridColumn], legend: Sequence[tuple[str, str]] = ()) -> bytes:
    """Draw the columns side by side, at most as wide as the page."""
    across = min(LARGEST, (WIDTH - GAP * (len(columns) - 1)) / len(columns))
    shapes = [image.shape[:2] for image in columns[0].images]
    tall = [across * min(TALLEST, height / width) for height, width in shapes]
    wide = across * len(columns) + GAP * (len(columns) - 1)
    below = LEGEND if legend else 0.0
    high = TITLE + sum(tall) + GAP * (len(tall) - 1) + below
    with styled():
        figure = Figure(figsize=(wide, high))
        axis = figure.add_axes((0, 0, 1, 1))  # in inches; an axis per image takes twice as long
        top = high - TITLE
        for n, column in enumerate(columns):
            axis.text(n * (across + GAP) + across / 2, top + 0.05, column.title, ha="center", va="bottom", fontsize=9)
        for row, height in enumerate(tall):
            for n, column in enumerate(columns):
                image, middle, (low, upper) = column.images[row], n * (across + GAP) + across / 2, column.limits
                half = min(across, height * image.shape[1] / image.shape[0]) / 2
                place = (middle - half, middle + half, top - height, top)
                how = "antialiased" if column.smooth else "nearest"
                axis.imshow(image, column.colours, vmin=low, vmax=upper, interpolation=how, extent=place)
            top -= height + GAP
        axis.set(xlim=(0, wide), ylim=(0, high), aspect="auto")
        axis.set_axis_off()
        if legend:
            patches = [Patch(facecolor=colour, edgecolor="#9aa5b1", linewidth=0.5) for _, colour in legend]
            names = [name for name, _ in legend]
            figure.legend(
                patches, names, loc="lower center", ncols=len(names), handlelength=1.1, columnspacing=1.3, borderpad=0
            )
        return png(figure)
