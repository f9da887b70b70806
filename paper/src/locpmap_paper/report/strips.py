"""Figures of example images: input, decoded labels, true labels, and LocPMAP's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.report.drawing import Figure, png, styled
from locpmap_paper.report.findings import OURS, in_sentence
from locpmap_paper.report.measures import MEAN_IOU, four_decimals
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Decoder, Level, Model, Record

NETWORKS = (("ce-fresh", "argmax"), ("ce-fixed", "argmax"), ("deep-pl", "argmax"))  # the first one pictured is shown
FIGURE_MODELS = ("deep-pl", "raw-pl")
INCHES, TITLE_INCHES = 1.04, 0.42  # width of an image, height of two lines above it
VOTE_VARIANCE = 0.25  # the maximum of p(1 - p)


@dataclass(frozen=True)
class Column:
    """A column of images (n, H, W) with a fixed colour scale."""

    title: str
    images: npt.NDArray[Any]
    colours: str = "gray"
    limits: tuple[float, float] = (0.0, 1.0)


def figure_model(record: Record, pictures: Pictures, level: Level) -> Model | None:
    """Return the model shown in Figure 1: the deep one if it was run, else the first that is pictured."""
    names = (*FIGURE_MODELS, *(model.name for model in record.models))
    known = {model.name: model for model in record.models}
    there = (name for name in names if name in known and f"{level.name}/{name}/locpmap/labels" in pictures)
    return next((known[name] for name in there), None)


def figure_one(record: Record, pictures: Pictures, level: Level, model: Model, n_images: int = 8) -> bytes:
    """Draw the paper's five columns, then LocPMAP's probability and variance."""
    columns = [_input(pictures, level), *_network(record, pictures, level)]
    columns += _labels(record, pictures, level, model, ("icm", "locpmap"))
    columns.append(Column("True mask\n", pictures[f"{level.name}/truth"]))
    columns += _uncertainty(pictures, level, f"{model.name}/locpmap")
    return _draw(columns, n_images)


def best_pictured(record: Record, pictures: Pictures, level: Level) -> tuple[Model, Decoder] | None:
    """Return the model and form of LocPMAP with the highest mean IoU whose probability is pictured."""
    best = None
    for model in record.models:
        for decoder in record.decoders:
            value = record.estimate(level.name, model.name, decoder.name, MEAN_IOU.value)
            there = f"{level.name}/{model.name}/{decoder.name}/probability" in pictures
            if decoder.family == OURS and there and value is not None and (best is None or value.mean > best[0]):
                best = value.mean, model, decoder
    return None if best is None else best[1:]


def teaser(record: Record, pictures: Pictures, level: Level, n_images: int = 3) -> tuple[bytes, str] | None:
    """Draw input, labels, uncertainty and truth by the best pictured model; return the PNG and the model's name."""
    best = best_pictured(record, pictures, level)
    if best is None:
        return None
    model, decoder = best
    name = f"{model.name}/{decoder.name}"
    labels = pictures.get(f"{level.name}/{name}/labels")
    columns = [_input(pictures, level)]
    columns += [] if labels is None else [Column("Labels\n", labels)]
    columns += _uncertainty(pictures, level, name)
    columns.append(Column("True labels\n", pictures[f"{level.name}/truth"]))
    return _draw(columns, n_images), f"{in_sentence(decoder)} on the model “{model.title}”"


def _input(pictures: Pictures, level: Level) -> Column:
    noisy = pictures[f"{level.name}/input"].astype(np.float32)
    low, high = np.percentile(noisy, [1, 99])
    return Column("Input\n", noisy, "gray", (float(low), float(max(high, low + 1e-6))))


def _network(record: Record, pictures: Pictures, level: Level) -> list[Column]:
    """Return the column of the network alone, or of the unaries alone if no network is pictured."""
    for model, decoder in (*NETWORKS, ("raw-pl", "argmax")):
        labels = pictures.get(f"{level.name}/{model}/{decoder}/labels")
        if labels is not None:
            title = "Unary alone" if model == "raw-pl" else "FCN"
            return [Column(f"{title}\n{overlap(record, level.name, model, decoder)}", labels)]
    return []


def _labels(record: Record, pictures: Pictures, level: Level, model: Model, decoders: tuple[str, ...]) -> list[Column]:
    columns = []
    for decoder in decoders:
        labels = pictures.get(f"{level.name}/{model.name}/{decoder}/labels")
        if labels is not None:
            title = {"icm": "ICM", "locpmap": "LocPMAP"}[decoder]
            columns.append(Column(f"{title}\n{overlap(record, level.name, model.name, decoder)}", labels))
    return columns


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
    tall = INCHES * height / width
    with styled():
        figure = Figure(figsize=(INCHES * len(columns), tall + TITLE_INCHES))
        figure.subplots_adjust(left=0, right=1, bottom=0, top=tall / (tall + TITLE_INCHES), wspace=0.04)
        for axis, column in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
            shown = _stacked(column.images[:n].astype(np.float32))
            axis.imshow(shown, cmap=column.colours, vmin=column.limits[0], vmax=column.limits[1], aspect="auto")
            axis.set_title(column.title, fontsize=9)
            axis.set_axis_off()
        return png(figure)


def _stacked(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Stack the images (n, H, W) vertically with an empty line between them, to draw them in one call."""
    parts: npt.NDArray[np.float32] = np.pad(images, ((0, 0), (0, 1), (0, 0)), constant_values=np.nan)
    return parts.reshape(-1, images.shape[2])[:-1]
