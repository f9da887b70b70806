"""The figures of scenes: the paper's Figures 2 and 3, and the location of errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from locpmap_paper.report import shown
from locpmap_paper.report.pictures import Pictures
from locpmap_paper.report.record import Decoder, Level, Model, Record
from locpmap_paper.report.scene_comparison import UNARIES
from locpmap_paper.report.scene_grid import GridColumn, draw_grid
from locpmap_paper.report.scene_images import Image, coloured, errors, legend_of, marked, windows
from locpmap_paper.report.scene_tables import PAPER_MODEL
from locpmap_paper.report.strips import VOTE_VARIANCE, overlap, pictured

PAPERS = ("icm", "locpmap")  # the decoders of the paper's Figure 2


@dataclass(frozen=True)
class Gallery:
    """The pictured scenes of one level, and the columns that can be drawn from them."""

    record: Record
    pictures: Pictures
    level: Level

    @cached_property
    def _windows(self) -> list[tuple[slice, slice]]:
        return windows(self.pictures, self.level)

    @property
    def _n_labels(self) -> int:
        return len(self.record.protocol.labels)

    def _cut(self, images: Image, scenes: list[int]) -> list[Image]:
        """Return the given scenes, cropped from their canvas."""
        return [images[n][self._windows[n]] for n in scenes]

    def _of(self, name: str) -> Image:
        return self.pictures[f"{self.level.name}/{name}"]

    def first(self, n_scenes: int) -> list[int]:
        """Return the indices of the first scenes, at most `n_scenes`."""
        return list(range(min(n_scenes, len(self._windows))))

    def with_pictured(self, n_scenes: int) -> list[int]:
        """Return the scenes with the most pixels of their rarest pictured label."""
        truth, pictured = self._of("truth"), self.record.protocol.pictured
        sizes = np.array([(truth == label).sum(axis=(1, 2)) for label in pictured]).min(axis=0)
        return sorted(np.argsort(-sizes, kind="stable")[:n_scenes].tolist())

    def photographs(self, scenes: list[int]) -> GridColumn:
        """Return the column of input photographs."""
        return GridColumn("Input\n", self._cut(self._of("input"), scenes))

    def labels(self, name: str, title: str, scenes: list[int]) -> list[GridColumn]:
        """Return the column of labels with this name in colours, or nothing if they are not pictured."""
        labels = self.pictures.get(f"{self.level.name}/{name}")
        if labels is None:
            return []
        images = [coloured(image, self._n_labels) for image in self._cut(labels, scenes)]
        return [GridColumn(title, images, smooth=False)]

    def decoded(self, model: str, decoder: str, title: str, scenes: list[int]) -> list[GridColumn]:
        """Return the column of a decoder's labels, with its mean IoU in the title."""
        value = overlap(self.record, self.level.name, model, decoder)
        return self.labels(f"{model}/{decoder}/labels", f"{title}\n{value}", scenes)

    def variance(self, name: str, scenes: list[int]) -> list[GridColumn]:
        """Return the column of the total variance per pixel: the sum over labels of p(1 - p)."""
        variance = self.pictures.get(f"{self.level.name}/{name}/variance")
        top = 1 - 1 / self._n_labels
        title = f"Variance\n0 to {top:.3g}"
        return [] if variance is None else [_scaled(title, self._cut(variance, scenes), "magma", top)]

    def errors(self, name: str, scenes: list[int]) -> list[GridColumn]:
        """Return the column of photographs with wrong pixels marked."""
        labels = self.pictures.get(f"{self.level.name}/{name}/labels")
        if labels is None:
            return []
        wrong, known = errors(labels, self._of("truth"), self._n_labels)
        parts = (self._cut(images, scenes) for images in (self._of("input"), wrong, known))
        return [GridColumn("Errors\nin red", [marked(*scene) for scene in zip(*parts, strict=True)], smooth=False)]

    def of_labels(self, name: str, scenes: list[int]) -> list[GridColumn]:
        """Return columns of probability p and variance p(1 - p) for each pictured label."""
        columns = []
        for place, label in enumerate(self.record.protocol.pictured):
            title = self.record.protocol.labels[label].capitalize()
            images = [
                image[..., place].astype(np.float32) for image in self._cut(self._of(f"{name}/probability"), scenes)
            ]
            columns.append(_scaled(f"{title}\nprobability, 0 to 1", images, "viridis", 1.0))
            spread = [image * (1 - image) for image in images]
            columns.append(_scaled(f"{title}\nvariance, 0 to {VOTE_VARIANCE:g}", spread, "magma", VOTE_VARIANCE))
        return columns

    def best(self) -> tuple[Model, Decoder] | None:
        """Return the model and form of LocPMAP shown in the figures of uncertainty."""
        found = shown.best(self.record, self.level, pictured(self.pictures, self.level, "probability"))
        return None if found is None else (found.model, found.decoder)

    def teaser(self, model: Model, form: Decoder, n_scenes: int = 3) -> bytes:
        """Draw photograph, labels, variance and true labels of a few scenes."""
        scenes, name = self.first(n_scenes), f"{model.name}/{form.name}"
        columns = [self.photographs(scenes), *self.labels(f"{name}/labels", "Labels\n", scenes)]
        columns += [*self.variance(name, scenes), *self.labels("truth", "True labels\n", scenes)]
        return draw_grid(columns, self._legend)

    def figure_two(self, model: Model, form: str, title: str, n_scenes: int = 6) -> bytes:
        """Draw the paper's Figure 2: input, unaries, ICM, one form of LocPMAP, true labels."""
        scenes = self.first(n_scenes)
        columns = [self.photographs(scenes), *self.decoded(*UNARIES, "Unaries' argmax", scenes)]
        columns += self.decoded(model.name, PAPERS[0], "ICM", scenes)
        columns += [*self.decoded(model.name, form, title, scenes), *self.labels("truth", "True labels\n", scenes)]
        return draw_grid(columns, self._legend)

    def papers_model(self) -> Model | None:
        """Return the model of Figure 2: the paper's if LocPMAP is pictured on it, else the first pictured one."""
        there = [m for m in self.record.models if f"{self.level.name}/{m.name}/{PAPERS[1]}/labels" in self.pictures]
        return min(there, key=lambda model: model.name != PAPER_MODEL, default=None)

    def figure_three(self, model: Model, form: Decoder, n_scenes: int = 4) -> bytes:
        """Draw the paper's Figure 3: input, then probability and variance of some labels."""
        scenes = self.with_pictured(n_scenes)
        return draw_grid([self.photographs(scenes), *self.of_labels(f"{model.name}/{form.name}", scenes)])

    def where_errors_are(self, model: Model, form: Decoder, n_scenes: int = 4) -> bytes:
        """Draw input, labels, true labels, errors and variance side by side."""
        scenes, name = self.first(n_scenes), f"{model.name}/{form.name}"
        columns = [self.photographs(scenes), *self.labels(f"{name}/labels", "Labels\n", scenes)]
        columns += [*self.labels("truth", "True labels\n", scenes), *self.errors(name, scenes)]
        return draw_grid([*columns, *self.variance(name, scenes)], self._legend)

    @property
    def _legend(self) -> list[tuple[str, str]]:
        return legend_of(self.record.protocol.labels)


def _scaled(title: str, images: list[Image], colours: str, top: float) -> GridColumn:
    return GridColumn(title, [image.astype(np.float32) for image in images], colours, (0.0, top))
