"""Scenes of the viewer: an image with a network's logits, from files or synthetic."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from locpmap.errors import InputError
from locpmap.formats import (
    NAMES_FILE,
    TRUTH_ENDING,
    find_pairs,
    label_colours,
    naming,
    read_image,
    read_label_map,
    read_names,
    read_scores,
)
from locpmap.refining import Prepared, Refiner, read, resize
from locpmap_viewer.colours import VOID
from locpmap_viewer.examples import EXAMPLES, synthetic_scene

MAX_PIXELS = 2048 * 2048
MAX_NUMBERS = 2048 * 2048 * 24  # pixels times labels (400 MB)
MAX_LABELS = 255
MAX_FILE = 512 << 20  # bytes


class Files(NamedTuple):
    """Files of a scene."""

    image: Path
    scores: Path
    truth: Path | None = None
    names: Path | None = None

    @property
    def dates(self) -> list[int]:
        """Times of the last changes."""
        return [path.stat().st_mtime_ns for path in self if path is not None]


@dataclass(frozen=True, eq=False)
class Scene:
    """Image with scores, label names and colours."""

    title: str
    image: np.ndarray  # (H, W) or (H, W, 3), integers
    scores: np.ndarray  # logits (h, w, K) float32, of the image's size or smaller
    names: tuple[str, ...]
    colours: np.ndarray  # (K, 3) uint8
    truth: np.ndarray | None = None  # (H, W), VOID where the label is unknown
    refiner: Refiner = field(default_factory=Refiner.load)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the image."""
        return self.image.shape[0], self.image.shape[1]

    @cached_property
    def logits(self) -> np.ndarray:
        """Logits resized to the image, (H, W, K) float32."""
        return resize(self.scores[None], *self.shape)[0]

    @cached_property
    def network_labels(self) -> np.ndarray:
        """Argmax of the logits, (H, W) uint8."""
        return self.logits.argmax(axis=2).astype(np.uint8)


@lru_cache(maxsize=1)  # decoders and seeds share the model
def prepared(scene: Scene, smoothing: float, temperature: float) -> Prepared:
    """Return the model that `locpmap.refine` decodes; the arguments add to the adjustment of the scene's refiner."""
    refiner = adjusted(scene, smoothing, temperature)
    return refiner.prepare(scene.image, scene.scores, layout="hwk", scores="logits")


def adjusted(scene: Scene, smoothing: float, temperature: float) -> Refiner:
    """Return the scene's refiner with smoothing and temperature added to those of its file."""
    own = scene.refiner.adjustment
    return scene.refiner.adjusted(
        strength=own.strength, smoothing=own.smoothing + smoothing, temperature=own.temperature * temperature
    )


def example_scene(name: str) -> Scene:
    """Return a synthetic scene."""
    title, _, names = EXAMPLES[name]
    image, truth, logits = synthetic_scene(name)
    return Scene(title, image, logits, names, label_colours(len(names)), truth)


def read_scene(title: str, files: Files, layout: str = "auto", refiner: Refiner | None = None) -> Scene:
    """Read a scene; raise if it is too large for the viewer.  None is the bundled refiner."""
    for path in (files.image, files.scores):
        _check_size(path)
    image = read_image(files.image)
    height, width = image.shape[:2]
    if height * width > MAX_PIXELS:
        raise InputError(
            f"{files.image} has {width}×{height} pixels, which is too large for the viewer: expected at most"
            f" {MAX_PIXELS / 1e6:.1f} million; use `locpmap refine` instead"
        )
    with naming(files.scores):
        scores = read(image, read_scores(files.scores), layout).scores[0]
    n_labels = scores.shape[2]
    if not 2 <= n_labels <= MAX_LABELS:
        raise InputError(f"{files.scores} holds {n_labels} labels, expected 2 to {MAX_LABELS}")
    if height * width * n_labels > MAX_NUMBERS:
        raise InputError(
            f"{width}×{height} pixels with {n_labels} labels are too many for the viewer: expected at most"
            f" {MAX_NUMBERS // 10**6} million numbers; use `locpmap refine` instead"
        )
    names = tuple(f"label {k}" for k in range(n_labels)) if files.names is None else _names(files.names, n_labels)
    truth = None if files.truth is None else _truth(files.truth, (height, width), n_labels)
    return Scene(title, image, scores, names, label_colours(n_labels), truth, refiner or Refiner.load())


def _names(path: Path, n_labels: int) -> tuple[str, ...]:
    """Read the names of the labels, one per line."""
    _check_size(path)
    names = read_names(path)
    if len(names) != n_labels:
        raise InputError(f"{path} holds {len(names)} names, expected {n_labels}: the name of one label per line")
    return names


def _truth(path: Path, shape: tuple[int, int], n_labels: int) -> np.ndarray:
    """Read the true labels of an image of the given shape; 255 is an unknown label."""
    _check_size(path)
    truth = read_label_map(path)
    if truth.shape != shape:
        raise InputError(f"{path} has shape {truth.shape}, expected {shape} like its image")
    known = truth[truth != VOID]
    if not known.size:
        raise InputError(f"{path} holds only {VOID} (an unknown label), expected labels from 0 to {n_labels - 1}")
    if known.max() >= n_labels:
        raise InputError(
            f"{path} contains the label {known.max()}, expected labels from 0 to {n_labels - 1}, or {VOID} if unknown"
        )
    return truth


def _check_size(path: Path) -> None:
    """Raise if a file, or its uncompressed content, is too large."""
    size = path.stat().st_size if path.is_file() else 0
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(member.file_size for member in archive.infolist()))
        except (zipfile.BadZipFile, NotImplementedError, OSError):
            return  # reading it raises a clearer error
    if size > MAX_FILE:
        raise InputError(
            f"{path} takes {size >> 20} MB, which is too large for the viewer: expected {MAX_FILE >> 20} MB"
        )


def pairs(folder: Path) -> dict[str, Files]:
    """Return the images of a folder that have logits of the same name, by name; links that lead out are skipped.

    ``NAME.truth.png`` holds the true labels of NAME, and ``names.txt`` the names of the labels of all images.
    """
    root = folder.resolve()

    def optional(name: str) -> Path | None:
        path = folder / name
        return path if path.is_file() and path.resolve().is_relative_to(root) else None

    names = optional(NAMES_FILE)
    return {
        printable(stem): Files(image, scores, optional(f"{stem}{TRUTH_ENDING}"), names)
        for stem, (image, scores) in find_pairs(folder).found.items()
    }


def printable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode: file names may contain any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()
