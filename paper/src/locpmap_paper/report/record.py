"""What a run recorded, as types: all that ``result.json`` (schema 1) holds, with the means over seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from locpmap_paper.report.statistics import Estimate, estimate, paired

RANKED = 10
SCENES = "stanford"  # the experiment that labels photographs; the others take noise off silhouettes


@dataclass(frozen=True)
class DataFile:
    """A file of data that the run read."""

    file: str
    sha256: str
    n_bytes: int


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from."""

    command: str
    started: str
    finished: str
    versions: dict[str, Any]
    machine: dict[str, Any]
    data: tuple[DataFile, ...]


@dataclass(frozen=True)
class Paper:
    """The paper's table: per decoder the IoU of every label and their mean."""

    setting: str
    raw: dict[str, tuple[float, ...]]
    deep: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Protocol:
    """What was done to which images."""

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
    pictured: tuple[int, ...] = (1,)  # the labels whose probability the pictures show


@dataclass(frozen=True)
class Level:
    """A strength of the noise, with one standard deviation per seed, or a kind of unaries, which has no sigma."""

    name: str
    says: str
    sigma: tuple[float, ...]


@dataclass(frozen=True)
class Model:
    """Features and a way of learning."""

    name: str
    features: str
    learning: str
    title: str
    says: str


@dataclass(frozen=True)
class Decoder:
    """A way from potentials to labels, with its settings."""

    name: str
    title: str
    method: str
    options: dict[str, Any]
    family: str
    paper: str | None
    says: str


@dataclass(frozen=True)
class Fit:
    """One model, learned once."""

    level: str
    seed: int
    model: str
    seconds: float | None
    details: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One decoder on one model's potentials; measures are None where there are none."""

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
        """Seconds for 1,000 images at this row's pace."""
        return None if self.seconds is None or self.n_images < 1 else 1000 * self.seconds / self.n_images


@dataclass(frozen=True)
class Setting:
    """One cell of the ablation of LocPMAP."""

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
    """Calibration as (confidence, accuracy, share of the pixels) and risk as (coverage, error rate)."""

    level: str
    seed: int
    model: str
    decoder: str
    calibration: tuple[tuple[float | None, ...], ...] | None
    risk: tuple[tuple[float | None, ...], ...] | None


@dataclass(frozen=True)
class Record:
    """All that ``result.json`` holds, with the means over seeds that the report is made of."""

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
        """Whether photographs were labelled, by some kinds of unaries; else noise was taken off, at some levels."""
        return self.experiment == SCENES

    @property
    def level_kind(self) -> str:
        """What a level is: the heading of its column."""
        return "unaries" if self.is_scenes else "noise"

    def place(self, level: Level) -> str:
        """A level by its name, as sentences say it: the variance level, the boosted unaries."""
        return f"{level.name} {'unaries' if self.is_scenes else 'level'}"

    @cached_property
    def _cells(self) -> dict[tuple[str, str, str], list[Row]]:
        cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.seed):
            cells.setdefault((row.level, row.model, row.decoder), []).append(row)
        return cells

    def rows_of(self, level: str, model: str, decoder: str) -> list[Row]:
        """The rows of one cell, one per seed."""
        return self._cells.get((level, model, decoder), [])

    def values(self, level: str, model: str, decoder: str, of: Callable[[Row], float | None]) -> dict[int, float]:
        """A measure per seed, where it is there."""
        found = {row.seed: of(row) for row in self.rows_of(level, model, decoder)}
        return {seed: value for seed, value in found.items() if value is not None}

    def estimate(self, level: str, model: str, decoder: str, of: Callable[[Row], float | None]) -> Estimate | None:
        """A measure's mean over seeds."""
        return estimate(self.values(level, model, decoder, of).values())

    def difference(
        self, level: str, left: tuple[str, str], right: tuple[str, str], of: Callable[[Row], float | None]
    ) -> Estimate | None:
        """The paired difference of two (model, decoder) over seeds."""
        return paired(self.values(level, *left, of), self.values(level, *right, of))

    def n_images(self, level: str, model: str, decoder: str) -> int:
        """How many of the first test images the cell was decoded on; 0 where it was refused."""
        rows = self.rows_of(level, model, decoder)
        return min((row.n_images for row in rows if row.refused is None), default=0)

    def is_ranked(self, level: str, model: str, decoder: str) -> bool:
        """Whether it was given enough images to stand beside the others: a tenth of what the most were given."""
        most = max((self.n_images(level, model, other.name) for other in self.decoders), default=0)
        return 0 < most <= RANKED * self.n_images(level, model, decoder)

    def decoders_of(self, level: str, model: str) -> list[Decoder]:
        """The decoders that this model was given to, in the order to show."""
        return [decoder for decoder in self.decoders if self.rows_of(level, model, decoder.name)]

    def models_with_rows(self) -> list[Model]:
        """The models of the catalogue that were really decoded, in the order to show."""
        present = {row.model for row in self.rows}
        return [model for model in self.models if model.name in present]

    def model(self, name: str) -> Model:
        """The model of that name."""
        return next(model for model in self.models if model.name == name)

    def decoder(self, name: str) -> Decoder:
        """The decoder of that name."""
        return next(decoder for decoder in self.decoders if decoder.name == name)
