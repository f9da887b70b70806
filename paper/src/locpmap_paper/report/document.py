"""The report of the denoising experiments as a list of blocks."""

from __future__ import annotations

from collections.abc import Iterator

from locpmap_paper.report import findings, network_comparison, sections, strips, tables
from locpmap_paper.report.blocks import Block, Bullets, Document, Heading, Paragraph, Picture, Section
from locpmap_paper.report.measures import MEASURES, NLL
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Record

SUBJECTS = {"digits": "a handwritten digit", "mnist": "a handwritten digit", "caltech": "the silhouette of an object"}


def compose(record: Record, pictures: Pictures) -> Document:
    """Build the report of a record, with its figures drawn."""
    protocol = record.protocol
    seeds = sections.seeds_in_words(record)
    subtitle = f"{protocol.n_train:,} training and {sections.n_decoded(record):,} test images of "
    subtitle += f"{protocol.height}×{protocol.width} pixels, {str(protocol.noise).capitalize()} noise, {seeds}"
    parts = (
        Section("Overview and findings", tuple(_overview(record, pictures))),
        Section("Comparison with the paper", tuple(_paper(record))),
        Section("All decoders and learning methods", tuple(sections.decoder_blocks(record, MEASURES))),
        Section("Example images", tuple(_examples(record, pictures))),
        Section("Calibration and ablation", tuple(sections.curve_blocks(record))),
        Section("Settings and provenance", tuple(sections.settings_blocks(record))),
    )
    return Document(record.title, subtitle, parts)


def _overview(record: Record, pictures: Pictures) -> Iterator[Block]:
    yield from sections.smoke_notice(record)
    subject = SUBJECTS.get(record.experiment, "an object")
    yield Paragraph(
        f"Each image shows {subject} under strong noise, and the task is to label every pixel as "
        f"{' or '.join(record.protocol.labels)}. A conditional random field (CRF) scores whole labellings: "
        "unary terms score each pixel's label, pairwise terms score the labels of neighbouring pixels. A decoder "
        f"computes labels from this score. {sections.LOCPMAP_IN_WORDS}"
    )
    for level in record.levels[:1]:
        if (figure := strips.main_figure(record, pictures, level)) is not None:
            yield Picture(
                "teaser.png",
                figure.png,
                "Noisy input, labels of the network alone, in the paper's setting and by LocPMAP at its best, "
                "probability, variance and true labels of a few test images",
                f"{_roles(figure)}. Then the probability of {record.protocol.labels[-1]} and its variance, p(1 − p), "
                "by LocPMAP at its best: the form and model with the highest mean IoU on the test images. "
                f"IoU is over all test images ({level.name} level, {tables.sigma(level)}).",
            )
    yield from sections.model_blocks(record)
    yield from sections.bar_blocks(record)
    yield Heading("Findings")
    yield from _findings(record)
    yield from sections.noise_blocks(record)


def _roles(figure: strips.Strip) -> str:
    return "; ".join(f"{pair.role}: {pair.words}" for pair in figure.shown if pair.role != pair.model.title)


def _findings(record: Record) -> Iterator[Block]:
    by_iou, by_nll = findings.verdicts(record), findings.verdicts(record, NLL)
    yield Paragraph(findings.summary(by_iou))
    joint = network_comparison.joint_in_words(record)
    network = "a network of the same kind trained with cross-entropy on newly drawn noise, without a CRF"
    if joint:
        yield Paragraph(f"Is LocPMAP, trained jointly with its network, better than {network}?")
        yield Bullets(tuple(joint))
    else:
        yield Paragraph(f"This run has no comparison on the same images with {network}.")
    if found := network_comparison.compare_with_network(record):
        yield tables.comparison_table(found)
    yield from sections.ranking_blocks(record, by_iou, by_nll)


def _paper(record: Record) -> Iterator[Block]:
    paper = record.protocol.paper
    if paper is None:
        yield Paragraph(f"The paper ({sections.CITATION}) has no table for these data. Our numbers are in its layout.")
    else:
        yield Paragraph(f"The paper ({sections.CITATION}): {paper.setting}.".replace("..", "."))
    yield Paragraph(
        "Intersection over union of background (bg), foreground (fg) and their mean. The weights are learned by "
        "pseudolikelihood, as in the paper. Raw features are the intensities; deep features come from a small "
        "fully convolutional network. The best value of each column is bold; a dash marks numbers that the paper does "
        "not report."
    )
    yield Bullets(tuple((f"{level.name} ({tables.sigma(level)})", level.says) for level in record.levels))
    if compared := findings.compared_with_paper(record):
        yield Paragraph("Summary:")
        yield Bullets(tuple(compared))
    shown = [
        tables.paper_table(record, level, features) for level in record.levels for features in findings.PAPER_MODELS
    ]
    yield from (table for table in shown if table is not None)
    for features, model in findings.PAPER_MODELS.items():
        if not any(row.model == model for row in record.rows):
            yield Paragraph(f"The {features} model ({model}) was not run.")


def _examples(record: Record, pictures: Pictures) -> Iterator[Block]:
    for level in record.levels:
        figure = strips.figure_one(record, pictures, level)
        if figure is None:
            yield Paragraph(f"This run has no example images of LocPMAP at the {level.name} level.")
            continue
        shown = figure.shown[-1].model
        yield Picture(
            f"figure-1-{sections.slug(level.name)}-{sections.slug(shown.name)}.png",
            figure.png,
            f"Input, network, ICM, LocPMAP, true labels, probability and variance, {level.name} level, {shown.title}",
            f"The paper's Figure 1, {level.name} level ({tables.sigma(level)}), seed {record.protocol.seeds[0]}: ICM "
            f"and LocPMAP in the paper's setting, on “{shown.title}”, then the probability of "
            f"{record.protocol.labels[-1]} and its variance. IoU is the mean over seeds, as in the tables above.",
        )
