"""The fraction of errors found among the pixels of highest variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.report.drawing import Figure, png, styled
from locpmap_paper.report.findings import OURS, judge
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.scene_images import errors
from locpmap_paper.report.shown import MOST

LINES = ("#0072B2", "#E69F00", "#1f2933", "#56B4E9", "#D55E00", "#8a949e")


@dataclass(frozen=True)
class ErrorCurve:
    """The fraction of errors among the most variable pixels, by one form of LocPMAP."""

    model: Model
    form: Decoder
    pixels: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    error_rate: float

    def among(self, fraction: float) -> float:
        """Return the fraction of errors among the given fraction of most variable pixels."""
        return float(np.interp(fraction, self.pixels, self.errors))


def ranked(
    variance: npt.NDArray[Any], wrong: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return the cumulative fractions of pixels and of errors by decreasing variance; None if there is no error.

    Pixels of equal variance form one step, so that the curve does not depend on their order.

    >>> ranked(np.array([0.0, 0.5, 0.5, 0.0]), np.array([False, True, False, False]))
    (array([0. , 0.5, 1. ]), array([0., 1., 1.]))
    """
    values, place = np.unique(variance, return_inverse=True)
    pixels = np.cumsum(np.bincount(place.ravel(), minlength=values.size)[::-1])
    found = np.cumsum(np.bincount(place.ravel(), weights=wrong.ravel(), minlength=values.size)[::-1])
    if not wrong.any():
        return None
    return np.append(0.0, pixels / pixels[-1]), np.append(0.0, found / found[-1])


def error_curves(record: Record, pictures: Pictures, level: Level) -> list[ErrorCurve]:
    """Return the curve of each model over all pictured scenes, for the best form of LocPMAP that has pictures."""
    lines = []
    for model in record.models:
        form = _pictured_form(record, pictures, level, model)
        if form is None:
            continue
        name = f"{level.name}/{model.name}/{form.name}"
        wrong, known = errors(pictures[f"{name}/labels"], pictures[f"{level.name}/truth"], len(record.protocol.labels))
        variance = pictures[f"{name}/variance"]
        known &= np.isfinite(variance)
        curve = ranked(variance[known], wrong[known]) if known.any() else None
        if curve is not None:
            lines.append(ErrorCurve(model, form, *curve, float(wrong[known].mean())))
    return lines


def _pictured_form(record: Record, pictures: Pictures, level: Level, model: Model) -> Decoder | None:
    verdict = judge(record, level, model)
    forms = [] if verdict is None else [verdict.best.decoder]
    forms += [decoder for decoder in record.decoders if decoder.family == OURS]
    names = {form.name: f"{level.name}/{model.name}/{form.name}" for form in forms}
    there = (form for form in forms if all(f"{names[form.name]}/{kind}" in pictures for kind in ("labels", "variance")))
    return next(there, None)


def draw_error_curves(lines: list[ErrorCurve]) -> bytes:
    """Draw the curves of the first six models and the diagonal, where variance would be unrelated to errors."""
    with styled():
        figure = Figure(figsize=(7.4, 3.6), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 100], [0, 100], color="#52606d", linewidth=1, linestyle=":", label="at random")
        for line, colour in zip(lines[:MOST], LINES, strict=False):
            title = line.model.title
            axis.plot(100 * line.pixels, 100 * line.errors, linewidth=1.7, color=colour, label=title)
        axis.set(xlim=(0, 100), ylim=(0, 101), xlabel="most variable pixels, %", ylabel="errors among them, %")
        figure.legend(loc="outside right upper")
        return png(figure)
