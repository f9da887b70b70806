"""Bar charts of decoders by mean IoU."""

from __future__ import annotations

import textwrap

from locpmap_paper.report import shown
from locpmap_paper.report.drawing import HALF, Figure, colour_of, png, styled
from locpmap_paper.report.measures import MEAN_IOU, four_decimals
from locpmap_paper.report.record import Level, Model, Record
from locpmap_paper.report.statistics import Estimate

BAR = 0.23  # inches


def decoder_bars(record: Record, level: Level, model: Model) -> bytes:
    """Draw the mean IoU of a model's ranked decoders, and of the model without pairwise terms, the best on top."""
    bars: list[tuple[str, str, Estimate]] = []
    for decoder in record.decoders_of(level.name, model.name):
        value = record.estimate(level.name, model.name, decoder.name, MEAN_IOU.value)
        if value is not None and record.is_ranked(level.name, model.name, decoder.name):
            bars.append((decoder.title, decoder.family, value))
    plain = shown.alone(record, level)
    if plain is not None and plain.model != model:
        value = record.estimate(level.name, plain.model.name, plain.decoder.name, MEAN_IOU.value)
        bars += [] if value is None else [(plain.role, plain.decoder.family, value)]
    bars.sort(key=lambda bar: bar[2].mean)
    means = [value.mean for *_, value in bars]
    with styled():
        figure = Figure(figsize=(HALF, BAR * len(bars) + 0.9), layout="constrained")
        axis = figure.subplots()
        errors = [value.error or 0.0 for *_, value in bars]
        drawn = axis.barh(
            range(len(bars)), means, xerr=errors, color=[colour_of(family) for _, family, _ in bars], height=0.72
        )
        axis.bar_label(drawn, [four_decimals(mean) for mean in means], padding=3, fontsize=8.5)
        axis.set_yticks(range(len(bars)), [textwrap.fill(title, 40) for title, *_ in bars])
        axis.set(xlim=(0, 1.25 * max(means, default=1.0)), ylim=(-0.6, len(bars) - 0.4), xlabel="mean IoU")
        axis.grid(visible=False, axis="y")
        axis.tick_params(axis="y", length=0)
        axis.set_title(textwrap.fill(model.title, 46), loc="left", x=0)
        return png(figure)
