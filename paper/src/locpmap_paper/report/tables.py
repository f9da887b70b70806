"""Tables of numbers: the paper's compared with ours, every decoder by every measure, the ablation."""

from __future__ import annotations

from collections.abc import Sequence

from locpmap_paper.report.ablation import Ablation
from locpmap_paper.report.blocks import Cell, Table
from locpmap_paper.report.findings import OURS, PAPER_MODELS
from locpmap_paper.report.measures import (
    BACKGROUND,
    FOREGROUND,
    MEAN_IOU,
    MEASURES,
    Measure,
    plus_minus,
    seconds,
    signed_error,
)
from locpmap_paper.report.network_comparison import NetworkComparison
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.statistics import Estimate, estimate

OVERLAPS = (BACKGROUND, FOREGROUND, MEAN_IOU)


def sigma(level: Level) -> str:
    """Return the standard deviation of the noise, averaged over seeds."""
    value = estimate(level.sigma)
    return "σ unknown" if value is None else f"σ = {value.mean:.3f}"


def paper_table(record: Record, level: Level, features: str) -> Table | None:
    """Return the paper's numbers and ours per decoder; None if our model was not run."""
    model = PAPER_MODELS[features]
    decoders = [d for d in record.decoders_of(level.name, model) if d.paper is not None or d.family == OURS]
    if not decoders:
        return None
    paper = record.protocol.paper
    theirs = {} if paper is None else paper.raw if features == "raw" else paper.deep
    best = [best_mean(record, level.name, model, decoders, measure) for measure in OVERLAPS]
    top = [max((values[n] for values in theirs.values() if n < len(values)), default=None) for n in range(3)]
    rows = []
    for decoder in decoders:
        printed = theirs.get(decoder.paper or "", ())
        their_cells = [
            Cell(f"{printed[n]:.3f}".removeprefix("0"), strong=printed[n] == top[n]) if n < len(printed) else Cell("–")
            for n in range(3)
        ]
        our_cells = [measured_cell(record, level.name, model, decoder, m, best[n]) for n, m in enumerate(OVERLAPS)]
        images = Cell(f"{record.n_images(level.name, model, decoder.name):,}")
        rows.append((Cell(decoder.title), *(their_cells if theirs else ()), *our_cells, images))
    ours = ("bg", "fg", "mean")
    columns = ("paper bg", "paper fg", "paper mean", "our bg", "our fg", "our mean") if theirs else ours
    caption = f"{features.capitalize()} features, {level.name} level ({sigma(level)})"
    return Table(caption, ("decoder", *columns, "images"), tuple(rows))


def decoder_table(record: Record, level: Level, model: Model, measures: Sequence[Measure] = MEASURES) -> Table | None:
    """Return the table of every decoder by every measure, the best values in bold."""
    decoders = record.decoders_of(level.name, model.name)
    if not decoders:
        return None
    best = {m.title: best_mean(record, level.name, model.name, decoders, m) for m in measures}
    rows: list[tuple[Cell, ...]] = []
    for decoder in decoders:
        cells = record.rows_of(level.name, model.name, decoder.name)
        refusal = next((row.refused for row in cells if row.refused is not None), None)
        if refusal is not None and all(row.refused is not None for row in cells):
            rows.append((Cell(decoder.title), Cell(f"refused: {refusal}", spans=True)))
            continue
        n_seeds = sum(row.refused is None for row in cells)
        fewer = "" if n_seeds == len(record.protocol.seeds) else f" ({n_seeds} of {len(record.protocol.seeds)} seeds)"
        images = Cell(f"{record.n_images(level.name, model.name, decoder.name):,}")
        measured = (measured_cell(record, level.name, model.name, decoder, m, best[m.title]) for m in measures)
        rows.append((Cell(decoder.title + fewer), *measured, images))
    columns = ("decoder", *(measure.title for measure in measures), "images")
    noise = "" if record.is_scenes else f" ({sigma(level)})"
    return Table(f"{model.title}, {record.place(level)}{noise}", columns, tuple(rows))


def best_mean(record: Record, level: str, model: str, decoders: Sequence[Decoder], measure: Measure) -> float | None:
    """Return the best mean among decoders with enough images to be ranked."""
    ranked = [decoder for decoder in decoders if record.is_ranked(level, model, decoder.name)]
    found = (record.estimate(level, model, decoder.name, measure.value) for decoder in ranked)
    values = [value.mean for value in found if value is not None]
    if not values:
        return None
    return max(values) if measure.larger_is_better else min(values)


def measured_cell(
    record: Record, level: str, model: str, decoder: Decoder, measure: Measure, best: float | None
) -> Cell:
    """Return the cell of a decoder's mean, in bold if it is the best."""
    value = record.estimate(level, model, decoder.name, measure.value)
    # Values that print identically are ties.
    top = value is not None and best is not None and measure.show(value.mean) == measure.show(best)
    return Cell(measure.text(value), strong=top and record.is_ranked(level, model, decoder.name))


def comparison_table(found: list[NetworkComparison]) -> Table:
    """Return the table of LocPMAP on every deep model compared with the cross-entropy network."""
    rows = tuple(
        (
            Cell(comparison.model.title),
            Cell(comparison.level.name),
            Cell(signed_error(comparison.iou), strong=comparison.iou is not None and comparison.iou.mean > 0),
            Cell(signed_error(comparison.nll), strong=comparison.nll is not None and comparison.nll.mean < 0),
            Cell(comparison.form.title),
        )
        for comparison in found
    )
    columns = ("model", "noise", "mean IoU − network's", "NLL − network's", "form of LocPMAP")
    title = "LocPMAP minus the cross-entropy network: paired differences over seeds, bold if LocPMAP is better"
    return Table(title, columns, rows, frozenset({0, 1, 4}))


def ablation_table(cells: Ablation) -> Table:
    """Return the table of LocPMAP variants (`Form`) that differ from the paper's algorithm in one to three settings."""
    rows = tuple(
        (
            Cell(change.title),
            Cell(_plain(change.iou)),
            Cell("" if change.form == cells.reference else signed_error(change.iou_change)),
            Cell(_plain(change.nll)),
            Cell("" if change.form == cells.reference else signed_error(change.nll_change)),
            Cell("–" if change.seconds is None else seconds(change.seconds.mean)),
        )
        for change in cells.changes()
    )
    columns = ("LocPMAP", "mean IoU", "change", "NLL", "change", "seconds")
    caption = f"{cells.place}: {cells.n_samples} samples, one setting changed at a time"
    return Table(caption, columns, rows)


def _plain(value: Estimate | None) -> str:
    return "–" if value is None else plus_minus(value)


def full_ablation_table(cells: Ablation) -> Table:
    """Return the table of all combinations at the common number of samples, the best first."""
    forms = [form for form in cells.forms if form.n_samples == cells.n_samples]
    known = [(form, value) for form in forms if (value := cells.mean(form, "mean_iou")) is not None]
    known.sort(key=lambda each: (-each[1].mean, each[0]))
    rows = tuple(
        (
            Cell("yes" if form.noise else "no"),
            Cell(form.start),
            Cell(form.blocks),
            Cell(form.probability),
            Cell(plus_minus(value)),
            Cell(_plain(cells.mean(form, "nll"))),
        )
        for form, value in known
    )
    columns = ("noise", "start", "blocks", "probability", "mean IoU", "NLL")
    caption = f"{cells.place}: all combinations with {cells.n_samples} samples"
    return Table(caption, columns, rows, frozenset({0, 1, 2, 3}))
