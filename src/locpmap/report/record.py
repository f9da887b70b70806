"""What a run recorded, read from its folder: ``result.json`` (schema 1) and ``pictures.npz``, checked and typed."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path
from locpmap.formats.readable import size_of
from locpmap.report.fields import build
from locpmap.report.statistics import Estimate, estimate, paired

SCHEMA = 1
RANKED = 10

Pictures = Mapping[str, npt.NDArray[Any]]


MAX_PICTURES = 2**27  # bytes
ODD = (zlib.error, TypeError, MemoryError, OverflowError)  # what else damaged files of NumPy raise


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
    """The paper's table: per decoder the IoU of background, foreground and their mean."""

    setting: str
    raw: dict[str, tuple[float, ...]]
    deep: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Protocol:
    """What was done to which images."""

    noise: str
    snr: float
    n_train: int
    n_fit: int | None
    n_held_out: int | None
    n_test: int
    height: int
    width: int
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    paper: Paper | None


@dataclass(frozen=True)
class Level:
    """A strength of the noise; sigma holds one standard deviation per seed."""

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


def read_record(folder: PathLike) -> Record:
    """The record in a folder; whatever is missing, damaged or of another schema is refused by name."""
    path = _folder(folder) / "result.json"
    size_of(path, "the record of a run")
    try:
        # JSON has no word for NaN and infinity; where a measure came out as one, there is none.
        content = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is damaged, expected JSON") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} has schema {schema!r}, expected {SCHEMA}")
    record = build(Record, content, str(path))
    _check_names(record, path)
    return record


def read_pictures(folder: PathLike, record: Record) -> Pictures:
    """The example images: (n, H, W) arrays by name, at least input and truth of every level."""
    path = _folder(folder) / "pictures.npz"
    size_of(path, "the pictures of a run")
    try:
        # Opened here, for NumPy leaves a damaged file open.
        with path.open("rb") as stream, zipfile.ZipFile(stream) as members:
            if sum(member.file_size for member in members.infolist()) > MAX_PICTURES:
                raise InputError(f"{path} unpacks to more than {MAX_PICTURES} bytes, expected a few pictures")
        with path.open("rb") as stream, np.load(stream) as file:
            pictures = {name: file[name] for name in file.files}
        wrong = [name for name, picture in pictures.items() if picture.dtype.kind not in "biuf"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, AttributeError, *ODD) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged, expected plain arrays in NumPy's .npz format") from None
    if wrong:
        raise InputError(f"{path} holds {wrong[0]}, which is no array of numbers, expected plain pictures")
    for level in record.levels:
        shape = pictures[f"{level.name}/input"].shape if f"{level.name}/input" in pictures else None
        if shape is None or f"{level.name}/truth" not in pictures:
            raise InputError(f"{path} holds no {level.name}/input and {level.name}/truth, expected both")
        for name, picture in pictures.items():
            if name.startswith(f"{level.name}/") and (picture.ndim != 3 or picture.shape != shape or 0 in shape):
                raise InputError(f"{path} holds {name} of shape {picture.shape}, expected (n, H, W) like the input")
    return pictures


def _folder(folder: PathLike) -> Path:
    path = checked_path(folder)
    if not path.is_dir():
        came = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{folder} {came}, expected the folder of a run")
    return path


def _check_names(record: Record, path: Path) -> None:
    """Every name that is used stands in a catalogue, no cell is there twice, and there is something to speak of."""
    for what, there in (
        ("levels", record.levels),
        ("seeds", record.protocol.seeds),
        ("labels", record.protocol.labels),
    ):
        if not there:
            raise InputError(f"{path} lists no {what}, expected at least one")
    known = {
        "level": {level.name for level in record.levels},
        "model": {model.name for model in record.models},
        "decoder": {decoder.name for decoder in record.decoders},
    }
    for part in ("fits", "rows", "ablation", "curves"):
        for n, entry in enumerate(getattr(record, part)):
            for kind, names in known.items():
                name = getattr(entry, kind, None)
                if name is not None and name not in names:
                    raise InputError(f"{path}.{part}[{n}].{kind} is {name!r}, expected one of the {kind}s listed there")
    cells = [(row.level, row.model, row.decoder, row.seed) for row in record.rows]
    if len(cells) != len(set(cells)):
        twice = next(cell for cell in cells if cells.count(cell) > 1)
        raise InputError(f"{path} holds two rows for {', '.join(map(str, twice))}, expected one")
