"""Figures of example images: input, decoded labels, true labels, and LocPMAP's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.report import shown
from locpmap_paper.report.drawing import FULL, Figure, png, styled
from locpmap_paper.report.measures import MEAN_IOU, four_decimals
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Level, Record
from locpmap_paper.report.shown import Shown

TITLE_INCHES, LARGEST = 0.42, 1.4  # height of two lines above an image, largest width of an image
VOTE_VARIANCE = 0.25  # the maximum of p(1 - p)


@dataclass(frozen=True)
class Column:
    """A column of images (n, H, W) with a fixed colour scale."""

    title: str
    images: npt.NDArray[Any]
    colours: str = "gray"
    limits: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Strip:
    """The main figure: a PNG, and the decoders on models that it shows."""

    png: bytes
    shown: tuple[Shown, ...]


def main_figure(record: Record, pictures: Pictures, level: Level, n_images: int = 3) -> Strip | None:
    """Draw input, network alone, the paper's setting, LocPMAP at its best with its uncertainty, and true labels."""
    there = pictured(pictures, level, "labels")
    best = shown.best(record, level, there & pictured(pictures, level, "probability"))
    if best is None:
        return None
    pairs = [shown.alone(record, level, there), shown.of_paper(record, level, there), best]
    known = tuple({pair.name: pair for pair in pairs if pair is not None}.values())
    columns = [_input(pictures, level), *(_labels(record, pictures, level, pair, pair.role) for pair in known)]
    columns += [*_uncertainty(pictures, level, best.name), _truth(pictures, level)]
    return Strip(_draw(columns, n_images), known)


def figure_one(record: Record, pictures: Pictures, level: Level, n_images: int = 4) -> Strip | None:
    """Draw the paper's Figure 1: input, network alone, ICM, LocPMAP and true mask, then LocPMAP's uncertainty."""
    there = pictured(pictures, level, "labels")
    paper = shown.of_paper(record, level, there)
    if paper is None:
        return None
    pairs = [shown.alone(record, level, there), paper]
    if f"{paper.model.name}/icm" in there:
        pairs.insert(1, Shown("ICM", paper.model, record.decoder("icm")))
    known = tuple(pair for pair in pairs if pair is not None)
    titles = {paper.name: "LocPMAP"}
    columns = [_labels(record, pictures, level, pair, titles.get(pair.name, pair.role)) for pair in known]
    columns = [_input(pictures, level), *columns, _truth(pictures, level)]
    return Strip(_draw([*columns, *_uncertainty(pictures, level, paper.name)], n_images), known)


def pictured(pictures: Pictures, level: Level, kind: str) -> set[str]:
    """Return the names ``model/decoder`` of which there are pictures of a kind."""
    begin, end = f"{level.name}/", f"/{kind}"
    return {name[len(begin) : -len(end)] for name in pictures if name.startswith(begin) and name.endswith(end)}


def _input(pictures: Pictures, level: Level) -> Column:
    noisy = pictures[f"{level.name}/input"].astype(np.float32)
    low, high = np.percentile(noisy, [1, 99])
    return Column("Input\n", noisy, "gray", (float(low), float(max(high, low + 1e-6))))


def _truth(pictures: Pictures, level: Level) -> Column:
    return Column("True labels\n", pictures[f"{level.name}/truth"])


def _labels(record: Record, pictures: Pictures, level: Level, pair: Shown, title: str) -> Column:
    value = overlap(record, level.name, pair.model.name, pair.decoder.name)
    return Column(f"{title}\n{value}", pictures[f"{level.name}/{pair.name}/labels"])


def overlap(record: Record, level: str, model: str, decoder: str) -> str:
    """Return the mean IoU for a column title, or an empty string if there is none."""
    value = record.estimate(level, model, decoder, MEAN_IOU.value)
    return "" if value is None else f"IoU {four_decimals(value.mean)}"


def _uncertainty(pictures: Pictures, level: Level, name: str) -> list[Column]:
    wanted = (("probability", "Probability", "viridis", 1.0), ("variance", "Variance", "magma", VOTE_VARIANCE))
    return [
        Column(f"{title}\n0 to {top:g}", pictures[f"{level.name}/{name}/{kind}"], colours, (0.0, top))
        for kind, title, colours, top in wanted
        if f"{level.name}/{name}/{kind}" in pictures
    ]


def _draw(columns: list[Column], n_images: int) -> bytes:
    n = min(n_images, len(columns[0].images))
    height, width = _stacked(columns[0].images[:n].astype(np.float32)).shape
    across = min(LARGEST, FULL / len(columns))
    tall = across * height / width
    with styled():
        figure = Figure(figsize=(across * len(columns), tall + TITLE_INCHES))
        figure.subplots_adjust(left=0, right=1, bottom=0, top=tall / (tall + TITLE_INCHES), wspace=0.04)
        for axis, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
            stacked = _stacked(column.images[:n].astype(np.float32))
            axis.imshow(stacked, cmap=column.colours, vmin=column.limits[0], vmax=column.limits[1], aspect="auto")
            axis.set_title(column.title, fontsize=9)
            axis.set_axis_off()
        return png(figure)


def _stacked(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Stack the images (n, H, W) vertically with an empty line between them, to draw them in one call."""
    parts: npt.NDArray[np.float32] = np.pad(images, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
    return parts.reshape(-1, images.shape[2])[:-1]
