"""The report of the scene experiment: photographs labelled with several kinds of unaries."""

from __future__ import annotations

from collections.abc import Iterator

from locpmap_paper.report import findings, scene_comparison, scene_tables, sections
from locpmap_paper.report.blocks import Block, Bullets, Document, Heading, Paragraph, Section
from locpmap_paper.report.findings import capitalised, in_sentence
from locpmap_paper.report.measures import MEAN_IOU, NLL, SCENE_MEASURES
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Record
from locpmap_paper.report.scene_examples import example_blocks, teaser


def compose(record: Record, pictures: Pictures) -> Document:
    """Build the report of a recorded run and draw its figures."""
    protocol = record.protocol
    subtitle = f"{protocol.n_train:,} training and {sections.n_decoded(record):,} test photographs of at most "
    subtitle += f"{protocol.height}×{protocol.width} pixels, {len(protocol.labels)} labels, "
    subtitle += f"{_count(len(record.levels))} of unaries, {sections.seeds_in_words(record)}"
    there = [each for each in SCENE_MEASURES if any(each.value(row) is not None for row in record.rows)]
    parts = (
        Section("Overview and findings", tuple(_overview(record, pictures))),
        Section("Comparison with the paper's Table 3", tuple(_paper(record))),
        Section("All decoders and learning methods", tuple(sections.decoder_blocks(record, there or SCENE_MEASURES))),
        Section("Results per label", tuple(_labels(record))),
        Section("Example scenes", tuple(example_blocks(record, pictures))),
        Section("Calibration", tuple(sections.curve_blocks(record))),
        Section("Settings and provenance", tuple(sections.settings_blocks(record))),
    )
    return Document(record.title, subtitle, parts)


def _count(n: int) -> str:
    return "one kind" if n == 1 else f"{n} kinds"


def _overview(record: Record, pictures: Pictures) -> Iterator[Block]:
    yield from sections.smoke_notice(record)
    labels = findings.listed(record.protocol.labels, "or")
    yield Paragraph(
        f"The task is to label every pixel of photographs of outdoor scenes: {labels}. A classifier predicts label "
        "probabilities for each pixel from its surroundings; their logarithms are the unaries. With the unaries alone, "
        "each pixel is labelled independently. A conditional random field (CRF) adds pairwise weights: neighbours tend "
        "to have the same label, except across boundaries. Unaries and pairwise weights score whole labellings, and a "
        f"decoder computes labels from this score. {sections.LOCPMAP_IN_WORDS} Pixels without a true label (void) are "
        "excluded from all measures."
    )
    yield Bullets(tuple((capitalised(record.place(level)), level.says) for level in record.levels))
    yield from teaser(record, pictures)
    yield from sections.model_blocks(record)
    yield from sections.bar_blocks(record)
    yield Heading("Findings")
    yield from _findings(record)


def _findings(record: Record) -> Iterator[Block]:
    by_iou, by_nll = findings.verdicts(record), findings.verdicts(record, NLL)
    answers = [answer for level in record.levels for answer in scene_comparison.in_words(record, level)]
    if answers:
        yield Paragraph(
            "Does the CRF help: is LocPMAP better than the unaries alone, which label each pixel independently? "
            "Temperature scaling calibrates their probabilities by one learned number and keeps their labels. "
            "Larger mean IoU is better; smaller NLL and AURC are better. The sentences are about the model with the "
            "highest mean IoU on these test scenes; the tables below show all models."
        )
        yield Bullets(tuple(answers))
    else:
        yield Paragraph("This run has no comparison of LocPMAP with the unaries alone on the same photographs.")
    for level in record.levels:
        if found := scene_comparison.compare_with_unaries(record, level):
            yield scene_tables.comparison_table(record, level, found)
    yield Heading("LocPMAP compared with other decoders")
    yield Bullets(tuple(_level_summaries(record, by_iou, by_nll)) or (("All unaries", findings.summary([])),))
    yield from sections.ranking_blocks(record, by_iou, by_nll)


def _level_summaries(
    record: Record, by_iou: list[findings.Verdict], by_nll: list[findings.Verdict]
) -> Iterator[tuple[str, str]]:
    """Yield for each kind of unaries on how many models LocPMAP is first."""
    for level in record.levels:
        texts = []
        for measure, found in ((MEAN_IOU, by_iou), (NLL, by_nll)):
            here = [verdict for verdict in found if verdict.level == level]
            first = [verdict for verdict in here if verdict.is_first]
            lost = [verdict.model.title for verdict in here if not verdict.is_first]
            if here:
                text = f"LocPMAP is first in {measure.title} on {len(first)} of {len(here)} models"
                texts.append(f"{text}, not on “{'”, “'.join(lost)}”" if lost else text)
        if texts:
            yield capitalised(record.place(level)), f"{'; '.join(texts)}."


def _paper(record: Record) -> Iterator[Block]:
    paper, model = record.protocol.paper, scene_tables.PAPER_MODEL
    if paper is None:
        yield Paragraph(f"The record has no numbers of the paper ({sections.CITATION}). Our numbers are in its layout.")
    else:
        yield Paragraph(f"The paper ({sections.CITATION}): {paper.setting}.".replace("..", "."))
    yield Paragraph(
        "Intersection over union of each label and their mean. Pairwise weights are learned by pseudolikelihood on "
        "learned boundaries, as in the paper. Our boosted unaries are compared with its “raw” numbers, our networks "
        "with its “deep” numbers. The paper's unaries and boundaries are not public, so this is a similar experiment, "
        "not an exact reproduction. The best value of each column is bold, separately for ours and the paper's."
    )
    shown = [scene_tables.paper_table(record, level) for level in record.levels]
    yield from (table for table in shown if table is not None)
    for level, table in zip(record.levels, shown, strict=True):
        if table is None:
            yield Paragraph(f"The paper's learning method ({model}) was not run on the {record.place(level)}.")


def _labels(record: Record) -> Iterator[Block]:
    yield Paragraph(
        "Intersection over union of each label, with the unaries alone and with LocPMAP on every model "
        f"({form_in_words(record)}). The best value of each column is bold."
    )
    shown = [scene_tables.label_table(record, level) for level in record.levels]
    yield from (table for table in shown if table is not None)


def form_in_words(record: Record) -> str:
    """Return a phrase for the form of LocPMAP that is shown."""
    tuned = next(filter(findings.is_tuned, record.decoders), None)
    best = "the form with the best mean IoU"
    return best if tuned is None else f"{in_sentence(tuned)} if it was run, else {best}"
