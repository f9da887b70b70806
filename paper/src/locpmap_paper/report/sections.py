"""The parts that all reports have: what is compared with what, curves, settings, provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from locpmap_paper.report import curves, findings, settings, tables
from locpmap_paper.report.ablation import ablations
from locpmap_paper.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from locpmap_paper.report.findings import Verdict, capital
from locpmap_paper.report.measures import MEAN_IOU, NLL, Measure
from locpmap_paper.report.record import Record

CITATION = "Bertasius, Liu, Torresani and Shi, Local Perturb-and-MAP for Structured Prediction, AISTATS 2017"
LOCPMAP_IN_WORDS = (
    "Local Perturb-and-MAP (LocPMAP) adds random noise to the score, climbs greedily to the nearest maximum, and "
    "repeats: the samples vote on each pixel's label, and how divided they are is its uncertainty."
)
WITHOUT_NEIGHBOURS = {  # by what a level is: the curves of other colours
    "noise": "black: the unary terms alone; pink: the plain cross-entropy network",
    "unaries": "black: a network's own argmax; pink: the unaries alone; purple: the same after temperature scaling",
}


def smoke_notice(record: Record) -> Iterator[Block]:
    """A warning where the run was a smoke run."""
    if record.fast:
        yield Paragraph(
            "This is a smoke run on few images: it shows that everything works, its numbers mean little.", True
        )


def seeds_in_words(record: Record) -> str:
    """How many there are."""
    n = len(record.protocol.seeds)
    return f"{n} seeds" if n > 1 else "one seed"


def n_decoded(record: Record) -> int:
    """The most test images that a decoder was given."""
    return max((row.n_images for row in record.rows), default=record.protocol.n_test)


def ranking_blocks(record: Record, by_iou: list[Verdict], by_nll: list[Verdict]) -> Iterator[Block]:
    """Where other decoders beat LocPMAP, who is first, and how sure all that is."""
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
            "Not ranked, because they were given less than a tenth of the images that others were given, but with a "
            "higher mean IoU there than LocPMAP on its own:"
        )
        yield Bullets(tuple(partial))
    if by_iou:
        yield Heading("Who is first in mean IoU")
        yield Bullets(tuple(findings.firsts(by_iou)))
    yield Paragraph(
        f"{certainty(record)} LocPMAP stands here in the form that held-out images chose (tuned) where there is one; "
        "for the others it is the best of its forms on these very test images. The tables below show all forms."
    )


def certainty(record: Record) -> str:
    """What the numbers are means of, and how sure that makes them."""
    if len(record.protocol.seeds) == 1:
        return "There is one seed only, so no number here has a standard error."
    anew = "split, learning and decoding" if record.is_scenes else "noise, learning and decoding"
    return (
        f"Numbers are means over {len(record.protocol.seeds)} seeds ({anew} drawn anew) ± the "
        "standard error of that mean; differences are taken seed by seed."
    )


def decoder_blocks(record: Record, measures: Sequence[Measure]) -> Iterator[Block]:
    """The measures in words, then a table per model and level."""
    yield Bullets(tuple((measure.title, f"{measure.says}.") for measure in measures if measure.says))
    yield Paragraph(
        "Slow decoders were given the first test images only: the last column says how many. The best of each column "
        "is bold, among the decoders that were given at least a tenth of the images that others were given; a dash "
        "stands where a decoder gives no such number (no probabilities)."
    )
    for model in record.models_with_rows():
        yield Heading(capital(model.title))
        yield Paragraph(model.says)
        made = (tables.decoder_table(record, level, model, measures) for level in record.levels)
        yield from (table for table in made if table is not None)


def curve_blocks(record: Record) -> Iterator[Block]:
    """Calibration and risk of every decoder, then the ablation."""
    without = WITHOUT_NEIGHBOURS[record.level_kind]
    drawn = [level for level in record.levels if curves.panel_models(record, level)]
    if drawn:
        yield Paragraph(
            "A decoder is calibrated if, of the pixels it is 80 % sure of, 80 % are right (the diagonal). Its "
            "uncertainty is useful if the error rate is low among the pixels it is most sure of and rises only at the "
            f"end. Curves are of seed {curves.first_seed(record)}."
        )
    for level in drawn:
        yield Picture(
            f"calibration-{slug(level.name)}.png",
            curves.calibration(record, level),
            f"Accuracy against confidence of every decoder, {record.place(level)}",
            f"Calibration, {record.place(level)}: accuracy of the pixels of each confidence. Blue: LocPMAP; orange: "
            f"the paper's other decoders; green: decoders beyond the paper; {without}.",
        )
        yield Picture(
            f"risk-coverage-{slug(level.name)}.png",
            curves.risk_coverage(record, level),
            f"Error rate against coverage of every decoder, {record.place(level)}",
            f"Risk and coverage, {record.place(level)}: the error rate among the most confident share of the pixels.",
        )
    if not drawn:
        yield Paragraph("This run recorded no curves.")
    yield from _ablation(record)


def _ablation(record: Record) -> Iterator[Block]:
    found = ablations(record)
    if not found:
        yield Paragraph("This run recorded no ablation.")
        return
    yield Heading("Why: one choice at a time")
    for cells in found:
        name = cells.place
        conclusions = tuple(cells.conclusions())
        if conclusions:
            yield Paragraph(
                f"{capital(name)}, against the paper's form of LocPMAP (noise, random start, votes, single sites) "
                f"with {cells.n_samples} samples:"
            )
            yield Bullets(conclusions)
        yield tables.ablation_table(cells)
        if (png := curves.overlap_by_samples(cells)) is not None:
            yield Picture(
                f"samples-{slug(cells.model.name)}-{slug(cells.level.name)}.png",
                png,
                f"Mean IoU against the number of samples, {name}",
                f"Mean IoU against the number of samples, {name}, on the ablation's images and under the first seed.",
            )
        yield tables.full_ablation_table(cells)


def settings_blocks(record: Record) -> Iterator[Block]:
    """The command and all that stands behind the numbers."""
    yield Code(record.provenance.command or "the command was not recorded")
    yield settings.facts_table(record)
    yield from _filled(settings.settings_table(record), settings.fits_table(record), settings.data_table(record))


def _filled(*made: Table) -> Iterator[Table]:
    yield from (table for table in made if table.rows)


def slug(name: str) -> str:
    """The name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
