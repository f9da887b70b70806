"""The contents of ``result.json`` (schema 1) as dataclasses, with means over seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from locpmap_paper.report.statistics import Estimate, estimate, paired

RANKED = 10
SCENES = "stanford"  # the experiment that labels photographs; the others denoise binary images


@dataclass(frozen=True)
class DataFile:
    """A data file that the run read."""

    file: str
    sha256: str
    n_bytes: int


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: command, times, versions, machine and data files."""

    command: str
    started: str
    finished: str
    versions: dict[str, Any]
    machine: dict[str, Any]
    data: tuple[DataFile, ...]


@dataclass(frozen=True)
class Paper:
    """The paper's table: for each decoder the IoU of every label and their mean."""

    setting: str
    raw: dict[str, tuple[float, ...]]
    deep: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Protocol:
    """The images, their split and noise, and the seeds."""

    noise: str | None
    snr: float | None
    n_train: int
    n_fit: int | None
    n_held_out: int | None
    n_test: int
    height: int
    width: int
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    paper: Paper | None
    pictured: tuple[int, ...] = (1,)  # labels whose probability is pictured


@dataclass(frozen=True)
class Level:
    """A noise level, with one standard deviation per seed, or a kind of unaries, without sigma."""

    name: str
    says: str
    sigma: tuple[float, ...]


@dataclass(frozen=True)
class Model:
    """Features and a learning method."""

    name: str
    features: str
    learning: str
    title: str
    says: str


@dataclass(frozen=True)
class Decoder:
    """A decoding method with its settings."""

    name: str
    title: str
    method: str
    options: dict[str, Any]
    family: str
    paper: str | None
    says: str


@dataclass(frozen=True)
class Fit:
    """One fit of a model."""

    level: str
    seed: int
    model: str
    seconds: float | None
    details: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """The measures of one decoder on one model; a measure is None if it was not recorded."""

    level: str
    seed: int
    model: str
    decoder: str
    n_images: int
    iou: tuple[float | None, ...] | None
    mean_iou: float | None
    image_iou: float | None
    accuracy: float | None
    score: float | None
    seconds: float | None
    ece: float | None
    brier: float | None
    nll: float | None
    aurc: float | None
    status: str | None
    refused: str | None

    @property
    def seconds_per_thousand(self) -> float | None:
        """Seconds per 1,000 images, extrapolated from this row."""
        return None if self.seconds is None or self.n_images < 1 else 1000 * self.seconds / self.n_images


@dataclass(frozen=True)
class Setting:
    """One setting of the ablation of LocPMAP."""

    level: str
    seed: int
    model: str
    noise: bool
    start: str
    probability: str
    blocks: str
    n_samples: int
    mean_iou: float | None
    nll: float | None
    seconds: float | None


@dataclass(frozen=True)
class Curve:
    """Calibration as (confidence, accuracy, fraction of pixels) and risk as (coverage, error rate)."""

    level: str
    seed: int
    model: str
    decoder: str
    calibration: tuple[tuple[float | None, ...], ...] | None
    risk: tuple[tuple[float | None, ...], ...] | None


@dataclass(frozen=True)
class Record:
    """The contents of ``result.json``, with the means over seeds used in the report."""

    experiment: str
    title: str
    fast: bool
    provenance: Provenance
    protocol: Protocol
    levels: tuple[Level, ...]
    models: tuple[Model, ...]
    decoders: tuple[Decoder, ...]
    fits: tuple[Fit, ...]
    rows: tuple[Row, ...]
    ablation: tuple[Setting, ...]
    curves: tuple[Curve, ...]

    @property
    def is_scenes(self) -> bool:
        """Whether the experiment labels photographs (levels are kinds of unaries); else it denoises binary images."""
        return self.experiment == SCENES

    @property
    def level_kind(self) -> str:
        """The heading of the column that holds the level."""
        return "unaries" if self.is_scenes else "noise"

    def place(self, level: Level) -> str:
        """Return a level's name for use in a sentence: the variance level, the boosted unaries."""
        return f"{level.name} {'unaries' if self.is_scenes else 'level'}"

    @cached_property
    def _cells(self) -> dict[tuple[str, str, str], list[Row]]:
        cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.seed):
            cells.setdefault((row.level, row.model, row.decoder), []).append(row)
        return cells

    def rows_of(self, level: str, model: str, decoder: str) -> list[Row]:
        """Return the rows of one cell, one per seed."""
        return self._cells.get((level, model, decoder), [])

    def values(self, level: str, model: str, decoder: str, of: Callable[[Row], float | None]) -> dict[int, float]:
        """Return a measure by seed, without seeds that lack it."""
        found = {row.seed: of(row) for row in self.rows_of(level, model, decoder)}
        return {seed: value for seed, value in found.items() if value is not None}

    def estimate(self, level: str, model: str, decoder: str, of: Callable[[Row], float | None]) -> Estimate | None:
        """Return a measure's mean over seeds."""
        return estimate(self.values(level, model, decoder, of).values())

    def difference(
        self, level: str, left: tuple[str, str], right: tuple[str, str], of: Callable[[Row], float | None]
    ) -> Estimate | None:
        """Return the paired difference of two (model, decoder) over seeds."""
        return paired(self.values(level, *left, of), self.values(level, *right, of))

    def n_images(self, level: str, model: str, decoder: str) -> int:
        """Return the number of test images that were decoded for this table cell (always the first ones).

        It is the smallest number over seeds, and 0 if the decoder does not support the model.
        """
        rows = self.rows_of(level, model, decoder)
        return min((row.n_images for row in rows if row.refused is None), default=0)

    def is_ranked(self, level: str, model: str, decoder: str) -> bool:
        """Return whether the decoder got at least a tenth of the images of the decoder with the most."""
        most = max((self.n_images(level, model, other.name) for other in self.decoders), default=0)
        return 0 < most <= RANKED * self.n_images(level, model, decoder)

    def decoders_of(self, level: str, model: str) -> list[Decoder]:
        """Return the decoders that were run on this model, in display order."""
        return [decoder for decoder in self.decoders if self.rows_of(level, model, decoder.name)]

    def models_with_rows(self) -> list[Model]:
        """Return the models that were decoded, in display order."""
        present = {row.model for row in self.rows}
        return [model for model in self.models if model.name in present]

    def model(self, name: str) -> Model:
        """Return the model with this name."""
        return next(model for model in self.models if model.name == name)

    def decoder(self, name: str) -> Decoder:
        """Return the decoder with this name."""
        return next(decoder for decoder in self.decoders if decoder.name == name)
