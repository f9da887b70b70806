"""The report of the scenes: photographs whose every pixel gets one of several labels, by several kinds of unaries."""

from __future__ import annotations

from collections.abc import Iterator

from locpmap_paper.report import findings, scene_duels, scene_tables, sections
from locpmap_paper.report.blocks import Block, Bullets, Document, Heading, Paragraph, Section
from locpmap_paper.report.findings import capital, spoken
from locpmap_paper.report.measures import MEAN_IOU, NLL, SCENE_MEASURES
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Record
from locpmap_paper.report.scene_examples import example_blocks, teaser


def compose(record: Record, pictures: Pictures) -> Document:
    """Everything that the record says, figures drawn."""
    protocol = record.protocol
    subtitle = f"{protocol.n_train:,} training and {sections.n_decoded(record):,} test photographs of at most "
    subtitle += f"{protocol.height}×{protocol.width} pixels, {len(protocol.labels)} labels, "
    subtitle += f"{_count(len(record.levels))} of unaries, {sections.seeds_in_words(record)}"
    there = [each for each in SCENE_MEASURES if any(each.value(row) is not None for row in record.rows)]
    parts = (
        Section("What was done, and what came out", tuple(_overview(record, pictures))),
        Section("Beside the paper's Table 3", tuple(_paper(record))),
        Section(
            "Every decoder, every way of learning", tuple(sections.decoder_blocks(record, there or SCENE_MEASURES))
        ),
        Section("Label by label", tuple(_labels(record))),
        Section("What it looks like", tuple(example_blocks(record, pictures))),
        Section("How far the probabilities can be trusted", tuple(sections.curve_blocks(record))),
        Section("Settings and provenance", tuple(sections.settings_blocks(record))),
    )
    return Document(record.title, subtitle, parts)


def _count(n: int) -> str:
    return "one kind" if n == 1 else f"{n} kinds"


def _overview(record: Record, pictures: Pictures) -> Iterator[Block]:
    yield from sections.smoke_notice(record)
    labels = findings.listed(record.protocol.labels, "or")
    yield Paragraph(
        f"Every pixel of a photograph of an outdoor scene has to be labelled: {labels}. A "
        "classifier looks at the surroundings of each pixel and says how likely each label is there; the logarithms of "
        "that are the unaries. By itself it decides pixel by pixel. A conditional random field (CRF) adds pairwise "
        "weights: neighbours tend to have the same label, unless there is a boundary between them. The two together "
        "score whole labellings, and a decoder turns that score into labels. "
        f"{sections.LOCPMAP_IN_WORDS} Pixels without a true label (void) are never counted."
    )
    yield Bullets(tuple((capital(record.place(level)), level.says) for level in record.levels))
    yield from teaser(record, pictures)
    yield Heading("Findings")
    yield from _findings(record)


def _findings(record: Record) -> Iterator[Block]:
    by_iou, by_nll = findings.verdicts(record), findings.verdicts(record, NLL)
    answers = [answer for level in record.levels for answer in scene_duels.in_words(record, level)]
    if answers:
        yield Paragraph(
            "Is the CRF worth having: does LocPMAP beat the unaries by themselves, each pixel on its own? Temperature "
            "scaling mends their probabilities by one learned number and leaves their labels as they are. Larger is "
            "better in mean IoU, smaller in NLL and AURC. The sentences are of the model with the highest mean IoU on "
            "these very test scenes, the tables below of all."
        )
        yield Bullets(tuple(answers))
    else:
        yield Paragraph("Not in this run: LocPMAP and the unaries by themselves on the same photographs.")
    for level in record.levels:
        if found := scene_duels.scene_duels(record, level):
            yield scene_tables.duel_table(record, level, found)
    yield Heading("LocPMAP among the decoders")
    yield Bullets(tuple(_level_summaries(record, by_iou, by_nll)) or (("All unaries", findings.summary([])),))
    yield from sections.ranking_blocks(record, by_iou, by_nll)


def _level_summaries(
    record: Record, by_iou: list[findings.Verdict], by_nll: list[findings.Verdict]
) -> Iterator[tuple[str, str]]:
    """Per kind of unaries, on how many models LocPMAP is first."""
    for level in record.levels:
        texts = []
        for measure, found in ((MEAN_IOU, by_iou), (NLL, by_nll)):
            here = [verdict for verdict in found if verdict.level == level]
            first = [verdict for verdict in here if verdict.is_first]
            lost = [verdict.model.title for verdict in here if not verdict.is_first]
            if here:
                text = f"in {measure.title} it is first on {len(first)} of {len(here)} models"
                texts.append(f"{text}, not on “{'”, “'.join(lost)}”" if lost else text)
        if texts:
            yield capital(record.place(level)), f"{'; '.join(texts)}."


def _paper(record: Record) -> Iterator[Block]:
    paper, model = record.protocol.paper, scene_tables.PAPER_MODEL
    if paper is None:
        yield Paragraph(f"The record holds no numbers of the paper ({sections.CITATION}); here are ours in its form.")
    else:
        yield Paragraph(f"The paper ({sections.CITATION}): {paper.setting}.".replace("..", "."))
    yield Paragraph(
        "Intersection over union of each label and their mean, with pairwise weights learned by pseudolikelihood on "
        "learned boundaries, as the paper learns them. Boosted unaries stand beside its “raw” numbers, networks beside "
        "its “deep” ones; its unaries and boundaries are not public, so this is the same kind of experiment rather "
        "than the same one. The best of each column is bold, among ours and among the paper's."
    )
    made = [scene_tables.paper_table(record, level) for level in record.levels]
    yield from (table for table in made if table is not None)
    for level, table in zip(record.levels, made, strict=True):
        if table is None:
            yield Paragraph(f"The paper's way ({model}) was not run on the {record.place(level)}.")


def _labels(record: Record) -> Iterator[Block]:
    yield Paragraph(
        "Which labels gain from neighbours: the intersection over union of each, by the unaries alone and by LocPMAP "
        f"on every model ({spoken_form(record)}). The best of each column is bold."
    )
    made = [scene_tables.label_table(record, level) for level in record.levels]
    yield from (table for table in made if table is not None)


def spoken_form(record: Record) -> str:
    """In which form LocPMAP stands for itself."""
    tuned = next(filter(findings.is_tuned, record.decoders), None)
    best = "in its best form in mean IoU"
    return best if tuned is None else f"as {spoken(tuned)} where it was run, else {best}"
