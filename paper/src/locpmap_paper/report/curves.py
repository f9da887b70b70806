"""Curves: calibration, risk against coverage, and mean IoU against the number of samples."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from locpmap_paper.report import scene_comparison
from locpmap_paper.report.ablation import Ablation, Form
from locpmap_paper.report.drawing import OTHER_COLOUR, Figure, line_styles, png, styled
from locpmap_paper.report.network_comparison import NETWORK
from locpmap_paper.report.record import Curve, Level, Record

LEAST_COVERAGE = 0.05  # the error rate among fewer pixels is too noisy
PANELS = ("raw-pl", "raw-consistent", "deep-pl", "deep-consistent-far")
N_PANELS = 4
PANEL_WIDTH = 4.1  # inches
SCALED_COLOUR = "#7B3294"  # purple, not used by any family of decoders


@dataclass(frozen=True)
class Reference:
    """A model without pairwise terms whose curve is drawn in the panels of others, for all or one kind of features."""

    model: str
    decoder: str
    title: str
    colour: str
    features: str | None = None


NETWORKS = (Reference(*NETWORK, "cross-entropy network", OTHER_COLOUR, "deep"),)
UNARIES = (
    Reference(*scene_comparison.UNARIES, "unaries alone", OTHER_COLOUR),
    Reference(*scene_comparison.SCALED, "unaries, temperature scaled", SCALED_COLOUR),
)
START_COLOURS = {"random": "#0072B2", "perturbed": "#E69F00", "unary": "#D55E00"}


def panel_models(record: Record, level: Level) -> list[str]:
    """Return the models whose curves are drawn: up to four denoising models, those in `PANELS` if there are any.

    For scenes: all models that a decoder other than a network's argmax was run on.
    """
    there = [m.name for m in record.models if any((c.level, c.model) == (level.name, m.name) for c in record.curves)]
    if record.is_scenes:
        networks = {decoder.name for decoder in record.decoders if decoder.family == "network"}
        fields = {c.model for c in record.curves if c.level == level.name and c.decoder not in networks}
        return [name for name in there if name in fields]
    wanted = [name for name in PANELS if name in there]
    return (wanted or there)[:N_PANELS]


def first_seed(record: Record) -> int | None:
    """Return the seed whose curves are drawn."""
    return min((curve.seed for curve in record.curves), default=None)


def references(record: Record) -> tuple[Reference, ...]:
    """Return the models that the curves of the CRFs are compared with."""
    return UNARIES if record.is_scenes else NETWORKS


def calibration(record: Record, level: Level) -> bytes:
    """Draw accuracy against confidence; a calibrated decoder lies on the diagonal."""
    least = 1 / max(len(record.protocol.labels), 1)

    def prepare(axis: Any) -> None:
        axis.plot([0, 1], [0, 1], color="#52606d", linewidth=1, linestyle=":", zorder=1)
        axis.set(xlim=(least - 0.01, 1.01), xlabel="confidence")

    return _panels(record, level, lambda curve: curve.calibration, prepare, "accuracy", marked=True)


def risk_coverage(record: Record, level: Level) -> bytes:
    """Draw the error rate among the most confident pixels against their fraction."""

    def prepare(axis: Any) -> None:
        axis.set(xlim=(0, 1.01), xlabel="coverage")

    def enough(curve: Curve) -> tuple[tuple[float | None, ...], ...]:
        return tuple(point for point in curve.risk or () if (point[0] or 0) >= LEAST_COVERAGE)

    return _panels(record, level, enough, prepare, "error rate among the covered", marked=False)


def _panels(
    record: Record,
    level: Level,
    points_of: Callable[[Curve], tuple[tuple[float | None, ...], ...] | None],
    prepare: Callable[[Any], None],
    ylabel: str,
    marked: bool,
) -> bytes:
    models, seed = panel_models(record, level), first_seed(record)
    styles = line_styles(record.decoders)
    chosen = [c for c in record.curves if c.level == level.name and c.seed == seed]
    across = min(len(models), 2)
    down = -(-len(models) // across)
    with styled():
        titles = [decoder.title for decoder in record.decoders if any(c.decoder == decoder.name for c in chosen)]
        rows = -(-(len(titles) + 1) // _columns(titles, across))
        figure = Figure(figsize=(PANEL_WIDTH * across, 2.9 * down + 0.2 * rows), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False)
        drawn: dict[str, Any] = {}
        for axis, name in zip(axes.flat, models, strict=False):
            prepare(axis)
            for curve in chosen:
                reference = _reference(record, curve, name)
                points = [p[:2] for p in points_of(curve) or () if None not in p[:2] and len(p) >= 2]
                if points and (curve.model == name or reference):
                    style = styles[curve.decoder] | ({"color": reference.colour, "linewidth": 1.8} if reference else {})
                    style |= {} if marked else {"marker": None}
                    (line,) = axis.plot(*zip(*points, strict=True), **style)
                    title = reference.title if reference else record.decoder(curve.decoder).title
                    drawn.setdefault(title, line)
            axis.set_title(textwrap.fill(record.model(name).title, 46), loc="left")
            axis.set_ylim(0, 1.02 if marked else None)
        for axis in axes[:, 0]:
            axis.set_ylabel(ylabel)
        for axis in list(axes.flat)[len(models) :]:
            axis.set_visible(False)
        order = {decoder.title: n for n, decoder in enumerate(record.decoders)}
        titles = sorted(drawn, key=lambda title: order.get(title, len(order)))
        figure.legend([drawn[t] for t in titles], titles, loc="outside lower center", ncols=_columns(titles, across))
        return png(figure)


def _reference(record: Record, curve: Curve, panel: str) -> Reference | None:
    """Return the reference that a curve belongs to, if it is drawn in this panel."""
    for each in references(record):
        if (curve.model, curve.decoder) == (each.model, each.decoder):
            return each if each.features in (None, record.model(panel).features) else None
    return None


def _columns(titles: list[str], across: int) -> int:
    """Return how many columns of the legend fit under the panels."""
    inches = 0.45 + 0.063 * max(map(len, titles), default=0)
    return max(1, int(PANEL_WIDTH * across / inches))


def overlap_by_samples(cells: Ablation) -> bytes | None:
    """Draw mean IoU against the number of samples: a panel per blocks and probability, a colour per start.

    Forms run with a single number of samples are omitted; return None if that holds for all.
    """
    others = [form for form in cells.forms if form.n_samples != cells.n_samples]
    kinds = sorted(
        {(form.blocks, form.probability) for form in others},
        key=lambda kind: (kind[0] != "sites", kind[1] != "votes"),
    )
    if not kinds:
        return None
    across = min(len(kinds), 2)
    down = -(-len(kinds) // across)
    with styled():
        figure = Figure(figsize=(PANEL_WIDTH * across, 2.6 * down + 0.6), layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        drawn: dict[str, Any] = {}
        for axis, (blocks, probability) in zip(axes.flat, kinds, strict=False):
            for start, colour in START_COLOURS.items():
                for noise in (True, False):
                    form = Form(noise, start, probability, blocks)
                    line = _line(axis, cells, form, colour)
                    if line is not None:
                        drawn.setdefault(f"{start} start, {'with' if noise else 'without'} noise", line)
            axis.set_title(f"{blocks}, {probability}", loc="left")
            axis.set_xscale("log")
            axis.set_xticks(cells.counts, [str(n) for n in cells.counts])
            axis.minorticks_off()
        for axis in axes[:, 0]:
            axis.set_ylabel("mean IoU")
        for axis in axes[-1]:
            axis.set_xlabel("number of samples")
        for axis in list(axes.flat)[len(kinds) :]:
            axis.set_visible(False)
        figure.legend(
            list(drawn.values()), list(drawn), loc="outside lower center", ncols=min(len(drawn), 3) if across > 1 else 1
        )
        return png(figure)


def _line(axis: Any, cells: Ablation, form: Form, colour: str) -> Any:
    """Draw one form's mean over seeds with standard errors; return None if it has fewer than two points."""
    points = [(n, cells.mean(replace(form, n_samples=n), "mean_iou")) for n in cells.counts]
    known = [(n, value) for n, value in points if value is not None]
    if len(known) < 2:
        return None
    return axis.errorbar(
        [n for n, _ in known],
        [value.mean for _, value in known],
        yerr=[value.error or 0.0 for _, value in known],
        color=colour,
        linestyle="-" if form.noise else (0, (4, 2)),
        marker="o" if form.noise else "s",
        markersize=3.8,
        markerfacecolor=colour if form.noise else "white",
        linewidth=1.5,
        capsize=2,
    )
