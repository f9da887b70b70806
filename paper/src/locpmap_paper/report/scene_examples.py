"""The section of example scenes: figures and captions."""

from __future__ import annotations

from collections.abc import Iterator

from locpmap_paper.report.blocks import Block, Heading, Paragraph, Picture
from locpmap_paper.report.findings import in_sentence, listed
from locpmap_paper.report.measures import MEAN_IOU
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Decoder, Model, Record
from locpmap_paper.report.scene_errors import draw_error_curves, error_curves
from locpmap_paper.report.scene_figures import PAPERS, Gallery
from locpmap_paper.report.sections import slug

TENTH, FIFTH = 0.1, 0.2


def teaser(record: Record, pictures: Pictures) -> Iterator[Block]:
    """Yield a figure of a few scenes, decoded with the best model that has pictures."""
    galleries = [Gallery(record, pictures, level) for level in record.levels]
    there = [(gallery, *best) for gallery in galleries if (best := gallery.best()) is not None]
    if there:
        gallery, model, form = max(there, key=lambda each: _mean_iou(each[0], each[1], each[2]))
        yield Picture(
            "teaser.png",
            gallery.teaser(model, form),
            "Photographs, labels, variance and true labels of a few test scenes",
            f"{in_sentence(form)} on the model “{model.title}”, {record.place(gallery.level)}: photograph, labels, the "
            "variance of each pixel (high where samples disagree), and the true labels.",
            is_private=True,
        )


def _mean_iou(gallery: Gallery, model: Model, form: Decoder) -> float:
    value = gallery.record.estimate(gallery.level.name, model.name, form.name, MEAN_IOU.value)
    return float("-inf") if value is None else value.mean


def example_blocks(record: Record, pictures: Pictures) -> Iterator[Block]:
    """Yield the paper's Figures 2 and 3 and the figures of errors for every kind of unaries."""
    for level in record.levels:
        yield Heading(f"Scenes with the {record.place(level)}")
        gallery = Gallery(record, pictures, level)
        found = [*_figure_two(gallery), *_doubt(gallery)]
        yield from found or [Paragraph(f"This run has no example images of LocPMAP on the {record.place(level)}.")]


def _figure_two(gallery: Gallery) -> Iterator[Block]:
    """Yield Figure 2 for the paper's model and, if another model is better, for that one."""
    paper = gallery.papers_model()
    if paper is not None:
        yield _decoded(gallery, paper, PAPERS[1], "LocPMAP", "The paper's Figure 2")
    best = gallery.best()
    if best is not None and best[0] != paper:
        model, form = best
        yield _decoded(gallery, model, form.name, "LocPMAP", f"The same scenes by the best model, {in_sentence(form)}")


def _decoded(gallery: Gallery, model: Model, form: str, title: str, figure: str) -> Picture:
    place, seed = gallery.record.place(gallery.level), gallery.record.protocol.seeds[0]
    return Picture(
        f"figure-2-{slug(gallery.level.name)}-{slug(model.name)}.png",
        gallery.figure_two(model, form, title),
        f"Photograph, the unaries' argmax, ICM, LocPMAP and true labels of test scenes, {place}, {model.title}",
        f"{figure}, {place}, seed {seed}: the unaries' argmax, then ICM and LocPMAP on the model “{model.title}”. "
        "IoU is the mean over seeds on all test scenes, as in the tables above.",
        is_private=True,
    )


def _doubt(gallery: Gallery) -> Iterator[Block]:
    record, level, best = gallery.record, gallery.level, gallery.best()
    place = record.place(level)
    if best is not None:
        model, form = best
        by = f"{in_sentence(form)} on the model “{model.title}”, {place}, seed {record.protocol.seeds[0]}"
        names = [record.protocol.labels[label] for label in record.protocol.pictured]
        if names:
            yield Picture(
                f"figure-3-{slug(level.name)}.png",
                gallery.figure_three(model, form),
                f"Photographs with probability and variance of {listed(names)}, {place}",
                f"The paper's Figure 3: probability p of {listed(names)} and its variance p(1 − p), in scenes "
                f"that show them. {by}.",
                is_private=True,
            )
        yield Picture(
            f"errors-{slug(level.name)}.png",
            gallery.where_errors_are(model, form),
            f"Photographs, labels, true labels, errors and variance of some test scenes, {place}",
            f"Errors and variance: {by}. The variance of a pixel is the sum over labels of p(1 − p). "
            "Pixels without a true label are blank and not counted.",
            is_private=True,
        )
    yield from _found(gallery)


def _found(gallery: Gallery) -> Iterator[Block]:
    lines = error_curves(gallery.record, gallery.pictures, gallery.level)
    if not lines:
        return
    place = gallery.record.place(gallery.level)
    lines.sort(key=lambda line: -_mean_iou(gallery, line.model, line.form))
    shown = lines[0]
    n_scenes = len(gallery.pictures[f"{gallery.level.name}/truth"])
    yield Picture(
        f"errors-found-{slug(gallery.level.name)}.png",
        draw_error_curves(lines),
        f"Fraction of the errors among the most variable pixels, {place}",
        f"Fraction of all errors found among the pixels of highest variance, {place}, over the {n_scenes} pictured "
        f"scenes. {in_sentence(shown.form)} on the model “{shown.model.title}” mislabels {shown.error_rate:.0%} "
        f"of these pixels. The 10 % of pixels with the highest variance contain {shown.among(TENTH):.0%} of the "
        f"errors, the top 20 % contain {shown.among(FIFTH):.0%}.",
    )
