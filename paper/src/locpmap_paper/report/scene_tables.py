"""Tables of scenes: the paper's numbers and ours, IoU per label, and CRFs compared with their unaries."""

from __future__ import annotations

from collections.abc import Sequence

from locpmap_paper.report.blocks import Cell, Table
from locpmap_paper.report.findings import OURS, capitalised, judge
from locpmap_paper.report.measures import MEAN_IOU, Measure, label_iou, signed_error
from locpmap_paper.report.record import Decoder, Level, Record
from locpmap_paper.report.scene_comparison import COMPARED, UNARIES, UnaryComparison
from locpmap_paper.report.tables import best_mean, measured_cell

PAPER_MODEL = "pl-edges"  # the paper's learning method
PAPER_RAW = "boosted"  # level compared with the paper's boosted unaries; others: with its deep ones


def overlaps(record: Record) -> tuple[Measure, ...]:
    """Return the IoU of each label, then their mean."""
    labels = (label_iou(name, index) for index, name in enumerate(record.protocol.labels))
    return (*labels, MEAN_IOU)


def papers_numbers(record: Record, level: Level) -> dict[str, tuple[float, ...]]:
    """Return the paper's numbers by decoder for this kind of unaries: one per label, then the mean."""
    paper = record.protocol.paper
    if paper is None:
        return {}
    return paper.raw if level.name == PAPER_RAW else paper.deep


def paper_table(record: Record, level: Level) -> Table | None:
    """Return the paper's Table 3 next to ours, two rows per decoder; None if our model was not run."""
    decoders = [d for d in record.decoders_of(level.name, PAPER_MODEL) if d.paper is not None or d.family == OURS]
    if not decoders:
        return None
    measures, theirs = overlaps(record), papers_numbers(record, level)
    best = [best_mean(record, level.name, PAPER_MODEL, decoders, measure) for measure in measures]
    rows = []
    for decoder in decoders:
        ours = (
            measured_cell(record, level.name, PAPER_MODEL, decoder, measure, top)
            for measure, top in zip(measures, best, strict=True)
        )
        images = Cell(f"{record.n_images(level.name, PAPER_MODEL, decoder.name):,}")
        rows.append((Cell(decoder.title), Cell("ours"), *ours, images))
        if (printed := theirs.get(decoder.paper or "")) is not None:
            rows.append((Cell(decoder.title), Cell("paper"), *_printed(printed, theirs, len(measures)), Cell("")))
    columns = ("decoder", "source", *(measure.title for measure in measures), "images")
    caption = f"Intersection over union, {record.place(level)}: ours and the paper's"
    return Table(
        caption if theirs else caption.removesuffix(" and the paper's"), columns, tuple(rows), frozenset({0, 1})
    )


def _printed(values: Sequence[float], theirs: dict[str, tuple[float, ...]], n_columns: int) -> list[Cell]:
    """Return cells of the paper's numbers, the best of each column in bold."""
    top = [max((each[n] for each in theirs.values() if n < len(each)), default=None) for n in range(n_columns)]
    return [
        Cell(f"{values[n]:.3f}".removeprefix("0"), strong=values[n] == top[n]) if n < len(values) else Cell("–")
        for n in range(n_columns)
    ]


def label_table(record: Record, level: Level) -> Table | None:
    """Return the IoU per label of the unaries alone and of LocPMAP on every model; None if nothing was run."""
    shown = [
        (model, record.decoder(UNARIES[1]))
        for model in record.models
        if model.name == UNARIES[0] and record.rows_of(level.name, *UNARIES)
    ]
    verdicts = (judge(record, level, model) for model in record.models)
    shown += [(verdict.model, verdict.best.decoder) for verdict in verdicts if verdict is not None]
    if not shown:
        return None
    names = [(model.name, decoder) for model, decoder in shown]
    measures = overlaps(record)
    best = [_best_of(record, level, names, measure) for measure in measures]
    rows = tuple(
        (
            Cell(model.title),
            Cell(decoder.title),
            *(
                measured_cell(record, level.name, model.name, decoder, measure, top)
                for measure, top in zip(measures, best, strict=True)
            ),
        )
        for model, decoder in shown
    )
    columns = ("model", "decoder", *(measure.title for measure in measures))
    return Table(f"Intersection over union by label, {record.place(level)}", columns, rows, frozenset({0, 1}))


def _best_of(record: Record, level: Level, cells: Sequence[tuple[str, Decoder]], measure: Measure) -> float | None:
    """Return the highest mean of a measure among the cells (model, decoder), or None if none was measured."""
    tops = (best_mean(record, level.name, model, [decoder], measure) for model, decoder in cells)
    return max((top for top in tops if top is not None), default=None)


def comparison_table(record: Record, level: Level, found: Sequence[UnaryComparison]) -> Table:
    """Return the table of LocPMAP on every model compared with the unaries alone."""
    rows = []
    for comparison in found:
        differences = [comparison.difference(measure) for measure in COMPARED]
        cells = (
            Cell("–") if each is None else Cell(signed_error(each.change), strong=each.is_better)
            for each in differences
        )
        rows.append((Cell(comparison.model.title), Cell(comparison.opponent), *cells, Cell(comparison.form.title)))
    columns = ("model", "compared with", *(f"{measure.title}, difference" for measure in COMPARED), "form of LocPMAP")
    caption = f"{record.place(level)}: LocPMAP minus the unaries, paired over seeds, bold if LocPMAP is better"
    return Table(capitalised(caption), columns, tuple(rows), frozenset({0, 1, 2 + len(COMPARED)}))
