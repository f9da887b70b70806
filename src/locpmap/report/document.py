"""The report as a list of blocks, in the order in which someone who has not read the paper can follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from locpmap.report import curves, duels, findings, settings, strips, tables
from locpmap.report.ablation import ablations
from locpmap.report.blocks import Block, Bullets, Code, Document, Heading, Paragraph, Picture, Section, Table
from locpmap.report.measures import MEAN_IOU, MEASURES, NLL
from locpmap.report.record import Level, Model, Pictures, Record

SUBJECTS = {"digits": "a handwritten digit", "mnist": "a handwritten digit", "caltech": "the silhouette of an object"}
CITATION = "Bertasius, Liu, Torresani and Shi, Local Perturb-and-MAP for Structured Prediction, AISTATS 2017"


def compose(record: Record, pictures: Pictures) -> Document:
    """Everything that the record says, figures drawn."""
    n, protocol = len(record.protocol.seeds), record.protocol
    seeds = f"{n} seeds" if n > 1 else "one seed"
    subtitle = (
        f"{protocol.n_train:,} training and {_n_decoded(record):,} test images of {protocol.height}×{protocol.width} "
    )
    subtitle += f"pixels, {protocol.noise.capitalize()} noise, {seeds}"
    sections = (
        Section("What was done, and what came out", tuple(_overview(record, pictures))),
        Section("Beside the paper", tuple(_paper(record))),
        Section("Every decoder, every way of learning", tuple(_decoders(record))),
        Section("What it looks like", tuple(_examples(record, pictures))),
        Section("How far the probabilities can be trusted, and why it works", tuple(_curves(record))),
        Section("Settings and provenance", tuple(_settings(record))),
    )
    return Document(record.title, subtitle, sections)


def _overview(record: Record, pictures: Pictures) -> Iterator[Block]:
    if record.fast:
        yield Paragraph(
            "This is a smoke run on few images: it shows that everything works, its numbers mean little.", True
        )
    subject = SUBJECTS.get(record.experiment, "an object")
    yield Paragraph(
        f"Each picture shows {subject} under so much noise that single pixels say little, and every pixel has to be "
        f"labelled {' or '.join(record.protocol.labels)}. A conditional random field scores whole labellings, by what "
        "each pixel shows and by which labels neighbours have; a decoder turns that score into labels. Local "
        "Perturb-and-MAP (LocPMAP) adds random noise to the score, climbs greedily to the nearest maximum, and "
        "repeats: the samples vote on each pixel's label, and how divided they are is its uncertainty."
    )
    if record.levels and (made := strips.teaser(record, pictures, record.levels[0])) is not None:
        png, by = made
        yield Picture(
            "teaser.png",
            png,
            "Noisy input, labels, probability, variance and truth of a few test images",
            f"{by}: noisy input, decoded labels, probability of {record.protocol.labels[-1]}, its variance, and the "
            f"truth ({record.levels[0].name} level, {tables.sigma(record.levels[0])}).",
        )
    yield Heading("Findings")
    yield from _findings(record)


def _n_decoded(record: Record) -> int:
    """The most test images that a decoder was given."""
    return max((row.n_images for row in record.rows), default=record.protocol.n_test)


def _findings(record: Record) -> Iterator[Block]:
    by_iou, by_nll = findings.verdicts(record), findings.verdicts(record, NLL)
    yield Paragraph(findings.summary(by_iou))
    prize = duels.prize_in_words(record)
    network = "a network of the same kind trained by plain cross-entropy on freshly drawn noise, without any CRF"
    if prize:
        yield Paragraph(f"Does LocPMAP, learned jointly with its network, beat {network}?")
        yield Bullets(tuple(prize))
    else:
        yield Paragraph(f"Not in this run: the comparison on the same images with {network}.")
    if found := duels.duels(record):
        yield tables.duel_table(found)
    for measure, ranked, words in ((MEAN_IOU, by_iou, "mean IoU"), (NLL, by_nll, "negative log-likelihood")):
        defeats = findings.defeats(ranked, measure)
        if defeats:
            yield Heading(f"Where another decoder beats LocPMAP in {words}")
            yield Bullets(tuple(defeats))
        elif ranked:
            yield Paragraph(f"In {words}, no other decoder beats LocPMAP on any model at any level.")
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
        f"{_certainty(record)} LocPMAP stands here in the form that held-out images chose (tuned) where there is one; "
        "for the others it is the best of its forms on these very test images. The tables below show all forms."
    )


def _certainty(record: Record) -> str:
    if len(record.protocol.seeds) == 1:
        return "There is one seed only, so no number here has a standard error."
    return (
        f"Numbers are means over {len(record.protocol.seeds)} seeds (noise, learning and decoding drawn anew) ± the "
        "standard error of that mean; differences are taken seed by seed."
    )


def _paper(record: Record) -> Iterator[Block]:
    paper = record.protocol.paper
    if paper is None:
        yield Paragraph(f"The paper ({CITATION}) has no table for these data; here are our numbers in its form.")
    else:
        yield Paragraph(f"The paper ({CITATION}): {paper.setting}.".replace("..", "."))
    yield Paragraph(
        "Intersection over union of background (bg), foreground (fg) and their mean, with weights learned by "
        "pseudolikelihood, as the paper learns them. Raw features are the intensities; deep features come from a small "
        "fully convolutional network. The best of each column is bold; a dash stands for what the paper does not have."
    )
    yield Bullets(tuple((f"{level.name} ({tables.sigma(level)})", level.says) for level in record.levels))
    if beside := findings.beside_paper(record):
        yield Paragraph("In short:")
        yield Bullets(tuple(beside))
    made = [
        tables.paper_table(record, level, features) for level in record.levels for features in findings.PAPER_MODELS
    ]
    yield from (table for table in made if table is not None)
    for features, model in findings.PAPER_MODELS.items():
        if not any(row.model == model for row in record.rows):
            yield Paragraph(f"The {features} model ({model}) was not run.")


def _decoders(record: Record) -> Iterator[Block]:
    yield Bullets(tuple((measure.title, f"{measure.says}.") for measure in MEASURES if measure.says))
    yield Paragraph(
        "Slow decoders were given the first test images only: the last column says how many. The best of each column "
        "is bold, among the decoders that were given at least a tenth of the images that others were given; a dash "
        "stands where a decoder gives no such number (no probabilities)."
    )
    for model in record.models_with_rows():
        yield Heading(_capital(model.title))
        yield Paragraph(model.says)
        made = (tables.decoder_table(record, level, model) for level in record.levels)
        yield from (table for table in made if table is not None)


def _examples(record: Record, pictures: Pictures) -> Iterator[Block]:
    for level in record.levels:
        shown = strips.figure_model(record, pictures, level)
        if shown is None:
            yield Paragraph(f"There are no pictures of LocPMAP at the {level.name} level.")
            continue
        yield _figure_one(record, pictures, level, shown, "The paper's Figure 1")
        joint = f"{level.name}/{duels.PRIZE}/locpmap/labels"
        if joint in pictures and shown.name != duels.PRIZE:
            yield _figure_one(record, pictures, level, record.model(duels.PRIZE), "The same images, learned jointly")


def _figure_one(record: Record, pictures: Pictures, level: Level, shown: Model, title: str) -> Picture:
    return Picture(
        f"figure-1-{_slug(level.name)}-{_slug(shown.name)}.png",
        strips.figure_one(record, pictures, level, shown),
        f"Input, network, ICM, LocPMAP, true mask, probability and variance, {level.name} level, {shown.title}",
        f"{title}, {level.name} level ({tables.sigma(level)}), seed {record.protocol.seeds[0]}: ICM "
        f"and LocPMAP on the model “{shown.title}”, then the probability of {record.protocol.labels[-1]} and its "
        "variance, p(1 − p). FCN is a network trained by itself, another model. IoU is that of the tables above, the"
        " mean over seeds.",
    )


def _curves(record: Record) -> Iterator[Block]:
    drawn = [level for level in record.levels if curves.panel_models(record, level)]
    if drawn:
        yield Paragraph(
            "A decoder is calibrated if, of the pixels it is 80 % sure of, 80 % are right (the diagonal). Its "
            "uncertainty is useful if the error rate is low among the pixels it is most sure of and rises only at the "
            f"end. Curves are of seed {curves.first_seed(record)}."
        )
    for level in drawn:
        yield Picture(
            f"calibration-{_slug(level.name)}.png",
            curves.calibration(record, level),
            f"Accuracy against confidence of every decoder, {level.name} level",
            f"Calibration, {level.name} level: accuracy of the pixels of each confidence. Blue: LocPMAP; orange: the "
            "paper's other decoders; green: decoders beyond the paper; black: the unary terms alone; pink: the plain "
            "cross-entropy network.",
        )
        yield Picture(
            f"risk-coverage-{_slug(level.name)}.png",
            curves.risk_coverage(record, level),
            f"Error rate against coverage of every decoder, {level.name} level",
            f"Risk and coverage, {level.name} level: the error rate among the most confident share of the pixels.",
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
        name = f"{cells.model.title}, {cells.level.name} level"
        conclusions = tuple(cells.conclusions())
        if conclusions:
            yield Paragraph(
                f"{_capital(name)}, against the paper's form of LocPMAP (noise, random start, votes, single sites) "
                f"with {cells.n_samples} samples:"
            )
            yield Bullets(conclusions)
        yield tables.ablation_table(cells)
        if (png := curves.overlap_by_samples(cells)) is not None:
            yield Picture(
                f"samples-{_slug(cells.model.name)}-{_slug(cells.level.name)}.png",
                png,
                f"Mean IoU against the number of samples, {name}",
                f"Mean IoU against the number of samples, {name}, on the ablation's images and under the first seed.",
            )
        yield tables.full_ablation_table(cells)


def _settings(record: Record) -> Iterator[Block]:
    yield Code(record.provenance.command or "the command was not recorded")
    yield settings.facts_table(record)
    yield from _filled(settings.settings_table(record), settings.fits_table(record), settings.data_table(record))


def _filled(*made: Table) -> Iterator[Table]:
    yield from (table for table in made if table.rows)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _slug(name: str) -> str:
    """The name as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
