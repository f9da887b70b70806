"""The sections that all reports share: rankings, tables, curves, settings and provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from locpmap_paper.report import curves, findings, settings, tables
from locpmap_paper.report.ablation import ablations
from locpmap_paper.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from locpmap_paper.report.findings import Verdict, capitalised
from locpmap_paper.report.measures import MEAN_IOU, NLL, Measure
from locpmap_paper.report.record import Record

CITATION = "Bertasius, Liu, Torresani and Shi, Local Perturb-and-MAP for Structured Prediction, AISTATS 2017"
LOCPMAP_IN_WORDS = (
    "Local Perturb-and-MAP (LocPMAP) draws samples: each one adds random noise to the score and climbs greedily to a "
    "local maximum. Each pixel gets the label of most samples, and the variance over samples is its uncertainty."
)
WITHOUT_NEIGHBOURS = {  # by kind of level: colours of the curves of models without pairwise terms
    "noise": "black: the unary terms alone; pink: the plain cross-entropy network",
    "unaries": "black: a network's own argmax; pink: the unaries alone; purple: the same after temperature scaling",
}


def smoke_notice(record: Record) -> Iterator[Block]:
    """Yield a warning if the run was a smoke run."""
    if record.fast:
        yield Paragraph(
            "This is a smoke run on few images. It checks that everything runs; its numbers are not meaningful.", True
        )


def seeds_in_words(record: Record) -> str:
    """Return the number of seeds as a phrase."""
    n = len(record.protocol.seeds)
    return f"{n} seeds" if n > 1 else "one seed"


def n_decoded(record: Record) -> int:
    """Return the largest number of test images that a decoder was given."""
    return max((row.n_images for row in record.rows), default=record.protocol.n_test)


def ranking_blocks(record: Record, by_iou: list[Verdict], by_nll: list[Verdict]) -> Iterator[Block]:
    """Yield the cells where another decoder beats LocPMAP, the ranking, and the standard errors."""
    anywhere = "with any unaries" if record.is_scenes else "at any level"
    for measure, ranked, words in ((MEAN_IOU, by_iou, "mean IoU"), (NLL, by_nll, "negative log-likelihood")):
        defeats = findings.defeats(ranked, measure)
        if defeats:
            yield Heading(f"Where another decoder beats LocPMAP in {words}")
            yield Bullets(tuple(defeats))
        elif ranked:
            yield Paragraph(f"In {words}, no other decoder beats LocPMAP on any model {anywhere}.")
    if partial := findings.unranked(by_iou):
        yield Paragraph(
            "Some decoders have a higher mean IoU than LocPMAP but are not ranked, because they were run on less than "
            "a tenth of the images:"
        )
        yield Bullets(tuple(partial))
    if by_iou:
        yield Heading("Best decoder by mean IoU")
        yield Bullets(tuple(findings.firsts(by_iou)))
    yield Paragraph(
        f"{certainty(record)} LocPMAP is represented by the form selected on held-out images (tuned) if it was run, "
        "else by its best form on these test images. The tables below show all forms."
    )


def certainty(record: Record) -> str:
    """Return a sentence on the seeds that the means and standard errors are taken over."""
    if len(record.protocol.seeds) == 1:
        return "There is only one seed, so the numbers have no standard errors."
    anew = "split, learning and decoding" if record.is_scenes else "noise, learning and decoding"
    return (
        f"Numbers are means over {len(record.protocol.seeds)} seeds ({anew} repeated for each) ± the "
        "standard error of that mean; differences are paired by seed."
    )


def decoder_blocks(record: Record, measures: Sequence[Measure]) -> Iterator[Block]:
    """Yield the definitions of the measures, then a table per model and level."""
    yield Bullets(tuple((measure.title, f"{measure.description}.") for measure in measures if measure.description))
    yield Paragraph(
        "Slow decoders were run on the first test images only; the last column gives their number. The best value of "
        "each column is bold, among decoders that were run on at least a tenth of the images. A dash marks a measure "
        "that a decoder does not provide, for example because it returns no probabilities."
    )
    for model in record.models_with_rows():
        yield Heading(capitalised(model.title))
        yield Paragraph(model.says)
        shown = (tables.decoder_table(record, level, model, measures) for level in record.levels)
        yield from (table for table in shown if table is not None)


def curve_blocks(record: Record) -> Iterator[Block]:
    """Yield calibration and risk-coverage curves, then the ablation."""
    without = WITHOUT_NEIGHBOURS[record.level_kind]
    drawn = [level for level in record.levels if curves.panel_models(record, level)]
    if drawn:
        yield Paragraph(
            "A decoder is calibrated if 80 % of the pixels with a confidence of 80 % are correct (the diagonal). Its "
            "uncertainty is useful if the error rate is low among the most confident pixels and rises only as coverage "
            f"approaches 1. The curves show seed {curves.first_seed(record)}."
        )
    for level in drawn:
        yield Picture(
            f"calibration-{slug(level.name)}.png",
            curves.calibration(record, level),
            f"Accuracy against confidence of every decoder, {record.place(level)}",
            f"Calibration, {record.place(level)}: accuracy of pixels by confidence. Blue: LocPMAP; orange: "
            f"the paper's other decoders; green: decoders that the paper does not have; {without}.",
        )
        yield Picture(
            f"risk-coverage-{slug(level.name)}.png",
            curves.risk_coverage(record, level),
            f"Error rate against coverage of every decoder, {record.place(level)}",
            f"Risk and coverage, {record.place(level)}: error rate among the most confident fraction of the pixels.",
        )
    if not drawn:
        yield Paragraph("This run recorded no curves.")
    yield from _ablation(record)


def _ablation(record: Record) -> Iterator[Block]:
    found = ablations(record)
    if not found:
        yield Paragraph("This run recorded no ablation.")
        return
    yield Heading("Ablation: one choice at a time")
    for cells in found:
        name = cells.place
        conclusions = tuple(cells.conclusions())
        if conclusions:
            yield Paragraph(
                f"{capitalised(name)}, against the paper's form of LocPMAP (noise, random start, votes, single sites) "
                f"with {cells.n_samples} samples:"
            )
            yield Bullets(conclusions)
        yield tables.ablation_table(cells)
        if (png := curves.overlap_by_samples(cells)) is not None:
            yield Picture(
                f"samples-{slug(cells.model.name)}-{slug(cells.level.name)}.png",
                png,
                f"Mean IoU against the number of samples, {name}",
                f"Mean IoU against the number of samples, {name}, first seed, on the images of the ablation.",
            )
        yield tables.full_ablation_table(cells)


def settings_blocks(record: Record) -> Iterator[Block]:
    """Yield the command, settings, fits, data files and machine."""
    yield Code(record.provenance.command or "the command was not recorded")
    yield settings.facts_table(record)
    yield from _filled(settings.settings_table(record), settings.fits_table(record), settings.data_table(record))


def _filled(*found: Table) -> Iterator[Table]:
    yield from (table for table in found if table.rows)


def slug(name: str) -> str:
    """Return the name in a form that is safe for file names."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
