"""The sections that all reports share: rankings, tables, curves, settings and provenance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from locpmap_paper.report import bars, curves, findings, settings, shown, tables
from locpmap_paper.report.ablation import ablations, noise_in_words
from locpmap_paper.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from locpmap_paper.report.findings import Verdict, capitalised
from locpmap_paper.report.measures import MEAN_IOU, NLL, Measure
from locpmap_paper.report.record import Record

CITATION = "Bertasius, Liu, Torresani and Shi, Local Perturb-and-MAP for Structured Prediction, AISTATS 2017"
LOCPMAP_IN_WORDS = (
    "Local Perturb-and-MAP (LocPMAP) draws samples: each one adds random noise to the score and climbs greedily to a "
    "local maximum. Each pixel gets the label of most samples, and the variance over samples is its uncertainty."
)
COLOURS_IN_WORDS = {  # by kind of level
    "noise": "blue: LocPMAP; orange: other decoders; black: a network without the CRF",
    "unaries": "blue: LocPMAP; orange: other decoders; black: unaries without the CRF",
}
FEATURES = {  # what the scores of a model are computed from
    "raw": "“Raw” models compute scores from the noisy intensities.",
    "deep": "“Deep” models compute them by a network.",
}
LEARNING = {
    "pseudolikelihood": "Pseudolikelihood fits the label of each pixel given its neighbours' true labels.",
    "composite": "Composite likelihood fits whole rows and columns given the true labels of the rest.",
    "consistent": "Consistent learning fits the label of each pixel given labels of its neighbours that LocPMAP "
    "samples, because true labels are unknown when decoding.",
    "cross-entropy": "Cross-entropy fits each pixel on its own, without a CRF.",
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


def model_blocks(record: Record) -> Iterator[Block]:
    """Yield the meaning of the models' names, then a sentence on each model."""
    models = record.models_with_rows()
    kinds = [words for name, words in FEATURES.items() if any(model.features == name for model in models)]
    kinds += [words for name, words in LEARNING.items() if any(model.learning == name for model in models)]
    if models:
        yield Heading("The models")
        yield Paragraph(" ".join(["A model is a way to score labellings, with its learned weights.", *kinds]))
        yield Bullets(tuple((f"{capitalised(model.title)} ({model.name})", model.says) for model in models))


def bar_blocks(record: Record) -> Iterator[Block]:
    """Yield bar charts of the decoders on the model learned as in the paper and on LocPMAP's best model."""
    drawn = [
        (level, pair)
        for level in record.levels
        for pair in (shown.of_paper(record, level), shown.best(record, level))
        if pair is not None
    ]
    charts = {(level.name, pair.model.name): (level, pair) for level, pair in drawn}
    if charts:
        yield Heading("Decoders by mean IoU")
    for level, pair in charts.values():
        yield Picture(
            f"decoders-{slug(level.name)}-{slug(pair.model.name)}.png",
            bars.decoder_bars(record, level, pair.model),
            f"Mean IoU of the decoders on {pair.model.title}, {record.place(level)}",
            f"{pair.role}, {record.place(level)}: the decoders that were run on “{pair.model.title}”; "
            f"{COLOURS_IN_WORDS[record.level_kind]}.",
        )


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
        found = (tables.decoder_table(record, level, model, measures) for level in record.levels)
        yield from (table for table in found if table is not None)


def curve_blocks(record: Record) -> Iterator[Block]:
    """Yield calibration and risk-coverage curves, then the ablation."""
    drawn = [level for level in record.levels if curves.drawn_pairs(record, level)]
    if drawn:
        yield Paragraph(
            "A decoder is calibrated if 80 % of the pixels with a confidence of 80 % are correct (the diagonal). Its "
            "uncertainty is useful if the error rate is low among the most confident pixels and rises only as coverage "
            f"approaches 1. The curves show seed {curves.first_seed(record)}; "
            f"{COLOURS_IN_WORDS[record.level_kind]}; dashed: the model learned as in the paper."
        )
    for level in drawn:
        yield Picture(
            f"calibration-{slug(level.name)}.png",
            curves.calibration(record, level),
            f"Accuracy against confidence, {record.place(level)}",
            f"Calibration, {record.place(level)}: accuracy of pixels by confidence.",
        )
        yield Picture(
            f"risk-coverage-{slug(level.name)}.png",
            curves.risk_coverage(record, level),
            f"Error rate against coverage, {record.place(level)}",
            f"Risk and coverage, {record.place(level)}: error rate among the most confident fraction of the pixels.",
        )
    if not drawn:
        yield Paragraph("This run recorded no curves.")
    yield from _ablation(record)


def noise_blocks(record: Record) -> Iterator[Block]:
    """Yield the effect of LocPMAP's noise, from the ablation."""
    if (text := noise_in_words(ablations(record))) is not None:
        yield Heading("What the noise of LocPMAP does")
        yield Paragraph(text)


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
