"""Inputs of ``locpmap refine``: the settings, and images with scores, in files or folders."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

from locpmap.arrays import Array
from locpmap.cli.folders import files_by_stem, stem_of
from locpmap.errors import InputError, LocpmapError

if TYPE_CHECKING:
    from locpmap.formats.nifti import Nifti
    from locpmap.formats.rasters import Place
    from locpmap.inference import LocPMAP
    from locpmap.refining import Refiner

VOLUMES = (".nii", ".nii.gz")
IMAGES = (".png", ".jpg", ".jpeg", ".npy", ".tif", ".tiff", *VOLUMES)
SCORES = (".npy", ".npz", ".safetensors", ".tif", ".tiff", *VOLUMES)
MAX_NAMED = 5  # unused files named in a message

LayoutOption = Annotated[
    str, typer.Option(metavar="auto|hwk|khw", help="Axes of the scores: labels last (hwk) or first (khw).")
]
ScoresOption = Annotated[str, typer.Option(metavar="auto|logits|probabilities", help="Kind of scores.")]


@dataclass(frozen=True)
class Settings:
    """Options that determine the results, together with the inputs and the refiner."""

    layout: str
    scores: str
    stride: float | None
    n_samples: int
    blocks: str
    seed: int
    device: str

    def check(self, refiner: Refiner, pairs: Sequence[Pair]) -> None:
        """Refine a tiny image or volume, to raise errors about settings once and before files are read."""
        sides = (8, 8, 8) if pairs[0].is_volume else (8, 8)
        n_labels = refiner.weights.offsets.shape[1] or 20
        shape = (n_labels, *sides) if self.layout == "khw" else (*sides, n_labels)
        reading = self.reading((1.0, 1.0, 1.0) if pairs[0].is_volume else None)
        prepared = refiner.prepare(np.zeros(sides), np.full(shape, 1 / n_labels, np.float32), **reading)
        prepared.refine(replace(self.decoder(), n_samples=1), seed=self.seed, device=self.device)

    def reading(self, spacing: tuple[float, ...] | None = None) -> dict[str, Any]:
        """Return options of :meth:`locpmap.Refiner.prepare` for an image, or for a volume with its spacing."""
        if spacing is None:
            return {"layout": self.layout, "scores": self.scores, "stride": self.stride}
        if self.layout != "auto":
            raise InputError(f"--layout is {self.layout}, expected auto for NIfTI files, whose last axis counts labels")
        return {"layout": "dhwk", "scores": self.scores, "stride": self.stride, "spacing": spacing}

    def decoder(self, **options: Any) -> LocPMAP:
        from locpmap.inference import LocPMAP

        return LocPMAP(self.n_samples, blocks=self.blocks, start="perturbed", **options)

    def n_labels(self, pair: Pair) -> int | None:
        """Return the number of labels of an input; None if it cannot be read, which is reported when it is refined."""
        from locpmap.refining import read

        with contextlib.suppress(LocpmapError, OSError):
            content = pair.read()
            if content.scan is not None:
                return int(content.scores.shape[-1])
            return int(read(content.image, content.scores, self.layout, self.scores).scores.shape[-1])
        return None


class Content(NamedTuple):
    """Content of the two files of an input."""

    image: Array
    scores: Array
    masked: Array | None  # (H, W), True where the image or the scores have no data
    place: Place | None = None  # the georeference of the image
    scan: Nifti | None = None  # of a volume

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """Sides of a voxel in mm; None for an image."""
        return None if self.scan is None else self.scan.spacing


@dataclass(frozen=True)
class Pair:
    """Files of one input."""

    name: str
    image: Path
    scores: Path

    @property
    def is_volume(self) -> bool:
        """Whether the image is a NIfTI file."""
        return self.image.name.lower().endswith(VOLUMES)

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.image, self.scores

    def checksums(self) -> list[str]:
        from locpmap.formats.readable import checksum

        return [checksum(path) for path in self.paths]

    def read(self) -> Content:
        if self.is_volume:
            return self._read_volume()
        from locpmap.formats.arrays import read_array
        from locpmap.formats.images import read_image
        from locpmap.formats.rasters import check_same_place, is_raster, read_raster
        from locpmap.formats.scores import read_scores
        from locpmap.refining.reading import channels_in_front

        raster = read_raster(self.image) if is_raster(self.image) else None
        network = read_raster(self.scores) if is_raster(self.scores) else None
        if raster is not None and network is not None:
            check_same_place(raster.place, network.place, self.paths)
        if raster is not None:
            image = raster.filled()
        else:
            image = read_array(self.image) if self.image.suffix.lower() == ".npy" else read_image(self.image)
        if image.ndim not in (2, 3):
            raise InputError(f"{self.image} has shape {image.shape}, expected one image (H, W) or (H, W, channels)")
        if image.ndim == 3 and channels_in_front(image.shape):
            image = np.moveaxis(image, 0, -1)
        scores = read_scores(self.scores) if network is None else network.filled()
        if scores.ndim == 4 and len(scores) == 1:  # a batch of one
            scores = scores[0]
        if scores.ndim != 3:
            like = " like a label map" if scores.ndim == 2 and scores.dtype.kind in "iub" else ""
            raise InputError(
                f"{self.scores} has shape {scores.shape}{like}, expected scores (H, W, labels) or (labels, H, W)"
            )
        masks = [found.masked for found in (raster, network) if found is not None and found.masked is not None]
        masked = np.logical_or.reduce([_enlarged(mask, image.shape[:2]) for mask in masks]) if masks else None
        return Content(image, scores, masked, None if raster is None else raster.place)

    def _read_volume(self) -> Content:
        from locpmap.formats.nifti import is_nifti, read_logits, read_scan

        if not is_nifti(self.scores):
            raise InputError(f"{self.image} is a NIfTI file and {self.scores} is not, expected both or none")
        scan = read_scan(self.image)
        return Content(scan.values, read_logits(self.scores, scan, self.image), None, scan=scan)


def _enlarged(mask: Array, size: tuple[int, ...]) -> Array:
    """Resize a mask of coarse scores to the size of the image, by nearest neighbour."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, mask.shape, strict=True))
    return mask[np.ix_(rows, columns)]


def check_names(names: Sequence[str], n_labels: int | None) -> None:
    """Raise unless there is one name per label, or the number of labels is not known."""
    if n_labels is not None and len(names) != n_labels:
        raise InputError(
            f"there are {len(names)} names of labels, expected {n_labels}, one per label: see --names and names.txt"
        )


def path_of(word: str) -> Path:
    """Convert an argument to ``Path``.  Raise for an empty string, which ``Path`` converts to the working directory."""
    if not word:
        raise typer.BadParameter("it is empty, expected the name of a file or a folder")
    return Path(word)


def pairs_of(image: Path, scores: Path | None) -> list[Pair]:
    """Return one pair of files, or the pairs of one or two folders by name.

    In two folders, every file must have a partner.  In one folder, a message names the files that have none.
    """
    for name, path in (("IMAGE", image), ("LOGITS", scores)):
        if path is not None and not path.exists():
            raise InputError(f"{name} {path} does not exist, expected a file or a folder")
    if scores is None:
        return _pairs_in(image)
    if image.is_dir() != scores.is_dir():
        folder, file = (image, scores) if image.is_dir() else (scores, image)
        raise InputError(f"{folder} is a folder and {file} is a file, expected two files or two folders")
    if not image.is_dir():
        return [Pair(stem_of(image), image, scores)]
    _refuse_label_maps(scores)
    images, logits = files_by_stem(image, IMAGES, str(image)), files_by_stem(scores, SCORES, str(scores))
    _check_partners((image, images, IMAGES), (scores, logits, SCORES))
    pairs = [Pair(stem, images[stem], logits[stem]) for stem in sorted(images)]
    if len({pair.is_volume for pair in pairs}) > 1:
        raise InputError(f"{image} holds images and NIfTI files, expected one kind")
    return pairs


def _refuse_label_maps(folder: Path) -> None:
    """Raise if a folder, expected to hold scores, holds only images or label maps."""
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    scores = [path for path in files if path.name.lower().endswith(SCORES)]
    found = scores or [path for path in files if path.name.lower().endswith(IMAGES)]
    if found and all(map(_is_label_map, found)):
        raise InputError(
            f"{folder} holds images or label maps such as {found[0].name}, expected scores (logits) of a network in"
            f" {', '.join(SCORES)}"
        )


def _is_label_map(path: Path) -> bool:
    """Return whether a file is a picture, or a .npy file of whole numbers (H, W)."""
    from locpmap.formats.arrays import describe

    if path.suffix.lower() == ".npy":
        with contextlib.suppress(LocpmapError):  # reported when the file is read
            shape, _, dtype, _ = describe(path)
            return len(shape) == 2 and dtype.kind in "iub"
    return not path.name.lower().endswith(SCORES)


def _pairs_in(folder: Path) -> list[Pair]:
    """Return the images of one folder with the scores of the same name, as the viewer does."""
    from locpmap.formats import IMAGE_ENDINGS, SCORE_ENDINGS, find_pairs

    if not folder.is_dir():
        raise InputError(f"LOGITS is missing, expected the scores of {folder}")
    found, unused = find_pairs(folder)
    if not found:
        raise InputError(
            f"{folder} holds no image ({', '.join(IMAGE_ENDINGS)}) with logits of the same name"
            f" ({', '.join(SCORE_ENDINGS)}), expected both, or the folder of the logits as LOGITS"
        )
    if unused:
        named = ", ".join(path.name for path in unused[:MAX_NAMED])
        more = f" and {len(unused) - MAX_NAMED} more" if len(unused) > MAX_NAMED else ""
        typer.echo(f"locpmap: not used, without a partner or with a name in use: {named}{more}", err=True)
    return [Pair(stem, *both) for stem, both in found.items()]


def _check_partners(*sides: tuple[Path, dict[str, Path], tuple[str, ...]]) -> None:
    """Raise if one folder lacks a file of the other; each side is (folder, files by stem, endings)."""
    found = []
    for (_, files, _), (other, partners, endings) in (sides, sides[::-1]):
        lonely = sorted(files.keys() - partners.keys())
        if lonely:
            verb = f"and {len(lonely) - 1} more have" if len(lonely) > 1 else "has"
            found.append((f"{files[lonely[0]]} {verb} no partner in {other}", lonely[0], endings))
    if len(found) == 2:
        raise InputError(f"{found[0][0]}, and {found[1][0]}: expected the same names in both")
    for sentence, stem, endings in found:
        raise InputError(f"{sentence}, expected {stem} with {' or '.join(endings)} there")
