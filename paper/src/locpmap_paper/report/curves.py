"""Curves: calibration, risk against coverage, and mean IoU against the number of samples."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from locpmap_paper.report import shown
from locpmap_paper.report.ablation import Ablation
from locpmap_paper.report.drawing import HALF, SCALED_COLOUR, Figure, colour_of, png, styled
from locpmap_paper.report.findings import OURS
from locpmap_paper.report.record import Curve, Level, Record
from locpmap_paper.report.scene_comparison import SCALED
from locpmap_paper.report.shown import Shown

LEAST_COVERAGE = 0.05  # the error rate among fewer pixels is too noisy
DASHED = (0, (4, 1.6))
LEGEND = 56  # characters of a line
Points = tuple[tuple[float | None, ...], ...]


def drawn_pairs(record: Record, level: Level) -> list[Shown]:
    """Return the decoders and models whose curves are drawn, at most six."""
    return shown.curves(record, level, {f"{c.model}/{c.decoder}" for c in record.curves if c.level == level.name})


def first_seed(record: Record) -> int | None:
    """Return the seed whose curves are drawn."""
    return min((curve.seed for curve in record.curves), default=None)


def calibration(record: Record, level: Level) -> bytes:
    """Draw accuracy against confidence; a calibrated decoder lies on the diagonal."""
    least = 1 / max(len(record.protocol.labels), 1)

    def prepare(axis: Any) -> None:
        axis.plot([0, 1], [0, 1], color="#52606d", linewidth=1, linestyle=":", zorder=1)
        axis.set(xlim=(least - 0.01, 1.01), ylim=(max(least - 0.2, 0), 1.02), xlabel="confidence", ylabel="accuracy")

    return _draw(record, level, lambda curve: curve.calibration or (), prepare, marker="o")


def risk_coverage(record: Record, level: Level) -> bytes:
    """Draw the error rate among the most confident pixels against their fraction."""

    def prepare(axis: Any) -> None:
        axis.set(xlim=(0, 1.01), xlabel="coverage", ylabel="error rate among the covered")
        axis.axhline(0, color="#52606d", linewidth=1)

    def enough(curve: Curve) -> Points:
        return tuple(point for point in curve.risk or () if (point[0] or 0) >= LEAST_COVERAGE)

    return _draw(record, level, enough, prepare, marker=None)


def _draw(
    record: Record,
    level: Level,
    points_of: Callable[[Curve], Points],
    prepare: Callable[[Any], None],
    marker: str | None,
) -> bytes:
    """Draw one curve per pair: a colour per family of decoders, dashed for the model learned as in the paper."""
    seed, paper = first_seed(record), shown.of_paper(record, level)
    by_pair = {(c.model, c.decoder): c for c in record.curves if (c.level, c.seed) == (level.name, seed)}
    with styled():
        figure = Figure(figsize=(HALF, 4.4), layout="constrained")
        axis = figure.subplots()
        prepare(axis)
        for pair in drawn_pairs(record, level):
            curve = by_pair.get((pair.model.name, pair.decoder.name))
            points = [p[:2] for p in (points_of(curve) if curve else ()) if len(p) >= 2 and None not in p[:2]]
            if points:
                scaled = (pair.model.name, pair.decoder.name) == SCALED
                axis.plot(
                    *zip(*points, strict=True),
                    color=SCALED_COLOUR if scaled else colour_of(pair.decoder.family),
                    linestyle=DASHED if paper is not None and pair.model == paper.model else "-",
                    linewidth=1.7,
                    marker=marker,
                    markersize=3.6,
                    zorder=3 if pair.decoder.family == OURS else 2,
                    label=pair.role if pair.decoder.family == "network" else textwrap.fill(pair.words, LEGEND),
                )
        figure.legend(loc="outside lower left", handlelength=3)
        return png(figure)


def overlap_by_samples(cells: Ablation) -> bytes | None:
    """Draw mean IoU against the number of samples, for the paper's form (dashed) and the best other form.

    Forms run with a single number of samples are omitted; return None if that holds for all.
    """
    several = {replace(form, n_samples=cells.n_samples) for form in cells.forms if form.n_samples != cells.n_samples}
    means = {form: value.mean for form in several if (value := cells.mean(form, "mean_iou")) is not None}
    others = sorted((form for form in means if form != cells.reference), key=lambda form: (-means[form], form))
    if not means:
        return None
    with styled():
        figure = Figure(figsize=(HALF, 3.6), layout="constrained")
        axis = figure.subplots()
        for form in [form for form in (cells.reference, *others[:1]) if form in means]:
            points = [(n, cells.mean(replace(form, n_samples=n), "mean_iou")) for n in cells.counts]
            known = [(n, value.mean, value.error) for n, value in points if value is not None]
            counts, values, errors = zip(*known, strict=True)
            is_paper = form == cells.reference
            axis.errorbar(
                counts,
                values,
                yerr=None if None in errors else errors,  # one seed
                color=colour_of("locpmap"),
                linestyle=DASHED if is_paper else "-",
                marker="o",
                markersize=3.6,
                linewidth=1.7,
                capsize=2,
                label=f"The paper's: {form}" if is_paper else f"The best: {form}",
            )
        axis.set(xscale="log", xlabel="number of samples", ylabel="mean IoU")
        axis.set_xticks(cells.counts, [str(n) for n in cells.counts])
        axis.minorticks_off()
        figure.legend(loc="outside lower left", handlelength=4)
        return png(figure)
