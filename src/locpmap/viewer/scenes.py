"""Scenes of the viewer: an image with a network's logits, from a user's files or synthetic."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.readable import naming
from locpmap.refining import Refiner
from locpmap.refining.prepared import Prepared
from locpmap.refining.reading import read
from locpmap.refining.resizing import resize
from locpmap.viewer.colours import label_colours, parsed
from locpmap.viewer.examples import made_scene

MAX_PIXELS = 2048 * 2048
MAX_NUMBERS = 2048 * 2048 * 24  # pixels times labels: 400 MB of them at a time
MAX_LABELS = 255
MAX_FILE = 512 << 20  # bytes
IMAGES, SCORES = (".png", ".jpg", ".jpeg"), (".npy", ".npz", ".safetensors")


@dataclass(frozen=True, eq=False)
class Scene:
    """An image with scores, as the viewer shows it."""

    title: str
    image: Array  # (H, W) or (H, W, 3), of whole numbers
    scores: Array  # logits (h, w, K) float32, perhaps smaller than the image
    names: tuple[str, ...]
    colours: Array  # (K, 3) uint8
    truth: Array | None = None  # (H, W)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the rows and columns of the image."""
        return self.image.shape[0], self.image.shape[1]

    @cached_property
    def logits(self) -> Array:
        """Return the logits at the size of the image, (H, W, K) float32."""
        return resize(self.scores[None], *self.shape)[0]

    @cached_property
    def network_labels(self) -> Array:
        """Return the network's labels, (H, W) uint8."""
        return self.logits.argmax(axis=2).astype(np.uint8)

    def prepared(self, smoothing: float = 0.0, temperature: float = 1.0) -> Prepared:
        """Return the model that `locpmap.refine` decodes."""
        refiner = Refiner.load().adjusted(smoothing=smoothing, temperature=temperature)
        return refiner.prepare(self.image, self.scores, layout="hwk", scores="logits")


def example_scene(name: str) -> Scene:
    """A synthetic scene."""
    made = made_scene(name)
    return Scene(made.title, made.image, made.logits, tuple(made.colours), parsed(made.colours.values()), made.truth)


def read_scene(title: str, image_file: Path, scores_file: Path, layout: str = "auto") -> Scene:
    """Read a scene from two files; one too large for the viewer is refused."""
    from locpmap.formats.images import read_image
    from locpmap.formats.scores import read_scores

    for path in (image_file, scores_file):
        _check_size(path)
    image = read_image(image_file)
    height, width = image.shape[:2]
    if height * width > MAX_PIXELS:
        raise InputError(
            f"{image_file} has {width}×{height} pixels, which is too large for the viewer: expected at most"
            f" {MAX_PIXELS / 1e6:.1f} million; `locpmap refine` takes it"
        )
    with naming(scores_file):
        scores = read(image, read_scores(scores_file), layout).scores[0]
    n_labels = scores.shape[2]
    if not 2 <= n_labels <= MAX_LABELS:
        raise InputError(f"{scores_file} holds {n_labels} labels, expected 2 to {MAX_LABELS}")
    if height * width * n_labels > MAX_NUMBERS:
        raise InputError(
            f"{width}×{height} pixels with {n_labels} labels are too many for the viewer: expected at most"
            f" {MAX_NUMBERS // 10**6} million numbers; `locpmap refine` takes them"
        )
    names = tuple(f"label {k}" for k in range(n_labels))
    scene = Scene(title, image, scores, names, label_colours(n_labels))
    with naming(scores_file):
        scene.prepared()  # whatever `locpmap.refine` would refuse, now
    return scene


def _check_size(path: Path) -> None:
    """Refuse what takes too much memory, also after it is unpacked."""
    size = path.stat().st_size if path.is_file() else 0
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                size = max(size, sum(member.file_size for member in archive.infolist()))
        except (zipfile.BadZipFile, NotImplementedError, OSError):
            return  # its reader says what is wrong with it
    if size > MAX_FILE:
        raise InputError(
            f"{path} takes {size >> 20} MB, which is too large for the viewer: expected {MAX_FILE >> 20} MB"
        )


def pairs(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the images of a folder with logits of the same name, by that name; links out of the folder are skipped.

    Bytes of names that are no text are escaped.
    """
    home = folder.resolve()
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        kind = path.suffix.lower()
        if path.name.startswith(".") or kind not in IMAGES + SCORES:
            continue
        if not path.is_file() or not path.resolve().is_relative_to(home):
            continue
        found.setdefault(printable(path.stem), {}).setdefault("image" if kind in IMAGES else "scores", path)
    return {stem: (both["image"], both["scores"]) for stem, both in found.items() if len(both) == 2}


def printable(text: str) -> str:
    """Escape what no page can show: names of files may be any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()
