"""Scenes of the viewer: an image with a network's logits, from files or synthetic."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from locpmap.errors import InputError
from locpmap.formats import IMAGE_ENDINGS, SCORE_ENDINGS, find_pairs, label_colours, naming, read_image, read_scores
from locpmap.refining import Prepared, Refiner, read, resize
from locpmap_viewer.colours import parsed
from locpmap_viewer.examples import synthetic_scene

MAX_PIXELS = 2048 * 2048
MAX_NUMBERS = 2048 * 2048 * 24  # pixels times labels (400 MB)
MAX_LABELS = 255
MAX_FILE = 512 << 20  # bytes
IMAGES, SCORES = IMAGE_ENDINGS, SCORE_ENDINGS


@dataclass(frozen=True, eq=False)
class Scene:
    """Image with scores, label names and colours."""

    title: str
    image: np.ndarray  # (H, W) or (H, W, 3), integers
    scores: np.ndarray  # logits (h, w, K) float32, of the image's size or smaller
    names: tuple[str, ...]
    colours: np.ndarray  # (K, 3) uint8
    truth: np.ndarray | None = None  # (H, W)
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

    def prepared(self, refiner: Refiner | None = None) -> Prepared:
        """Return the model that `locpmap.refine` decodes, by default with the scene's refiner."""
        return (refiner or self.refiner).prepare(self.image, self.scores, layout="hwk", scores="logits")


def example_scene(name: str) -> Scene:
    """Return a synthetic scene."""
    found = synthetic_scene(name)
    names, colours = tuple(found.colours), parsed(found.colours.values())
    return Scene(found.title, found.image, found.logits, names, colours, found.truth)


def read_scene(
    title: str, image_file: Path, scores_file: Path, layout: str = "auto", refiner: Refiner | None = None
) -> Scene:
    """Read a scene from two files; raise if it is too large for the viewer.  None is the bundled refiner."""
    for path in (image_file, scores_file):
        _check_size(path)
    image = read_image(image_file)
    height, width = image.shape[:2]
    if height * width > MAX_PIXELS:
        raise InputError(
            f"{image_file} has {width}×{height} pixels, which is too large for the viewer: expected at most"
            f" {MAX_PIXELS / 1e6:.1f} million; use `locpmap refine` instead"
        )
    with naming(scores_file):
        scores = read(image, read_scores(scores_file), layout).scores[0]
    n_labels = scores.shape[2]
    if not 2 <= n_labels <= MAX_LABELS:
        raise InputError(f"{scores_file} holds {n_labels} labels, expected 2 to {MAX_LABELS}")
    if height * width * n_labels > MAX_NUMBERS:
        raise InputError(
            f"{width}×{height} pixels with {n_labels} labels are too many for the viewer: expected at most"
            f" {MAX_NUMBERS // 10**6} million numbers; use `locpmap refine` instead"
        )
    names = tuple(f"label {k}" for k in range(n_labels))
    scene = Scene(title, image, scores, names, label_colours(n_labels), refiner=refiner or Refiner.load())
    with naming(scores_file):
        scene.prepared()  # raise what `locpmap.refine` would raise
    return scene


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


def pairs(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the images of a folder that have logits of the same name, by name; links that lead out are skipped."""
    return {printable(stem): pair for stem, pair in find_pairs(folder).found.items()}


def printable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode: file names may contain any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()
