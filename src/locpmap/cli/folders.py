"""Match the files of several folders by name, and read one input at a time."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError

if TYPE_CHECKING:
    from locpmap.features import Features, GivenUnary, ImageFeatures


MAX_LABELS = 2**15 - 1  # limit of `CRF`
COMPRESSED = ".nii.gz"
ENDINGS = {"unary": (".npy",), "images": (".png", ".jpg", ".jpeg", ".npy"), "labels": (".npy", ".png")}


@dataclass(frozen=True)
class Example:
    """Files of one input; None where a kind of file is not used."""

    stem: str
    unary: Path | None
    image: Path | None
    labels: Path | None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.unary, self.image, self.labels) if path is not None]

    def read_unary(self) -> Array | None:
        """Read unary features (H, W, D); a file of shape (H, W) holds one feature."""
        from locpmap.formats.arrays import read_array

        if self.unary is None:
            return None
        array = read_array(self.unary)
        if array.ndim not in (2, 3):
            raise InputError(f"{self.unary} has shape {array.shape}, expected (H, W, D)")
        return array if array.ndim == 3 else array[:, :, None]

    def read_image(self) -> Array | None:
        """Read an image (H, W) or (H, W, C)."""
        from locpmap.formats.arrays import read_array
        from locpmap.formats.images import read_image

        if self.image is None:
            return None
        array = read_array(self.image) if _ending(self.image) == ".npy" else read_image(self.image)
        if array.ndim not in (2, 3):
            raise InputError(f"{self.image} has shape {array.shape}, expected (H, W) or (H, W, channels)")
        return array

    def read_labels(self) -> Array:
        assert self.labels is not None
        return read_labels(self.labels)

    def features(self, extract: ImageFeatures | GivenUnary) -> Features:
        """Return the features of this input."""
        from locpmap.formats.readable import naming

        image = self.read_image()
        with naming(self.unary or self.image):
            features = extract(image if self.unary is None else (self.read_unary(), image))  # type: ignore[arg-type]
        if features.batched:  # the image has a channel axis, the extractor none
            channels = extract.channels or "no"
            assert image is not None
            raise InputError(f"{self.image} has shape {image.shape}, expected {channels} channels as in training")
        return features


def read_labels(path: Path) -> Array:
    """Read an integer label map (H, W) from a .npy or .png file."""
    from locpmap.formats.arrays import read_array
    from locpmap.formats.images import read_label_map

    array = read_array(path) if _ending(path) == ".npy" else read_label_map(path)
    if array.dtype.kind == "f":
        raise InputError(f"{path} holds {array.dtype}, expected labels as whole numbers")
    if array.ndim != 2:
        raise InputError(f"{path} has shape {array.shape}, expected labels (H, W)")
    return array


def labelled(examples: Sequence[Example], extract: ImageFeatures | GivenUnary) -> Iterator[tuple[Features, Array]]:
    """Yield pairs (features, labels) for `CRF.fit`."""
    for example in examples:
        features, labels = example.features(extract), example.read_labels()
        if labels.shape != features.structure.shape:
            raise InputError(
                f"{example.labels} has shape {labels.shape}, expected {features.structure.shape}"
                f" like {example.unary or example.image}"
            )
        yield features, labels


def match(unary: Path | None, images: Path | None, labels: Path | None = None) -> list[Example]:
    """Return the inputs of the folders, sorted by name; raise if a folder lacks one of them."""
    if unary is None and images is None:
        raise InputError("no inputs are given, expected --unary or --images")
    given = {"unary": unary, "images": images, "labels": labels}
    found = {name: _files(folder, name) for name, folder in given.items() if folder is not None}
    stems = sorted(set().union(*found.values()))
    for stem, (name, files) in itertools.product(stems, found.items()):
        if stem not in files:
            present = next(others[stem] for others in found.values() if stem in others)
            names = " or ".join(f"{stem}{ending}" for ending in ENDINGS[name])
            raise InputError(f"{present} has no partner in --{name} {given[name]}, expected {names} there")
    columns = [found.get(name, {}) for name in ("unary", "images", "labels")]
    return [Example(stem, *(column.get(stem) for column in columns)) for stem in stems]


def _files(folder: Path, name: str) -> dict[str, Path]:
    """Return the files of the folder of option ``--name``, by stem."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"--{name} {folder} {what}, expected a folder")
    return files_by_stem(folder, ENDINGS[name], f"--{name} {folder}")


def files_by_stem(folder: Path, endings: Sequence[str], called: str) -> dict[str, Path]:
    """Return the files of a folder by stem; skip hidden files and other endings."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or _ending(path) not in endings:
            continue
        if (stem := stem_of(path)) in files:
            raise InputError(f"{files[stem]} and {path.name} have the same name, expected one of them")
        files[stem] = path
    if not files:
        raise InputError(f"{called} holds no file that ends in {', '.join(endings)}")
    return files


def check_folder(output: Path, inputs: Iterable[Path]) -> None:
    """Raise if the folder of the results holds an input, or cannot be created or written."""
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file, expected a folder for the results")
    for path in (output, *output.parents):
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path} is a link to {path.readlink()}, which does not exist; expected a folder")
    if any(output.resolve() == path.parent.resolve() for path in inputs):
        raise InputError(f"{output} is also an input, expected another folder for the results")
    nearest = next(path for path in (output, *output.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise InputError(f"{output} cannot be created: {nearest} is a file, expected a folder")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"{nearest} cannot be written: permission denied")


def _ending(path: Path) -> str:
    return COMPRESSED if path.name.lower().endswith(COMPRESSED) else path.suffix.lower()


def stem_of(path: Path) -> str:
    """Return the name of a file without its ending, such as that of scan.nii.gz."""
    return path.name[: -len(_ending(path))] if _ending(path) else path.name


def count_labels(examples: Sequence[Example], n_labels: int | None, ignore_label: int | None) -> int:
    """Return ``n_labels``, or if None the largest label of all files + 1; raise if a label is out of range."""
    seen: dict[int, Path] = {}  # label: first file that contains it
    for example in examples:
        assert example.labels is not None
        for label in np.unique(example.read_labels()).tolist():
            seen.setdefault(int(label), example.labels)
    if ignore_label is not None:
        seen.pop(ignore_label, None)
    if not seen:
        raise InputError(f"all pixels of all labels are {ignore_label}, which --ignore-label excludes")
    least, most = min(seen), max(seen)
    also = "" if ignore_label is None else f" or {ignore_label}"
    if least < 0:
        raise InputError(f"{seen[least]} contains the label {least}, expected labels from 0{also}")
    if n_labels is not None:
        if most >= n_labels:
            raise InputError(f"{seen[most]} contains the label {most}, expected labels from 0 to {n_labels - 1}{also}")
        return n_labels
    if most >= MAX_LABELS:
        raise InputError(f"{seen[most]} contains the label {most}, expected at most {MAX_LABELS} labels")
    if most == 0:
        raise InputError("all labels are 0, expected at least two labels, or --n-labels")
    if most + 1 > 2 * len(seen) and most > 3:  # such as 255 for white or void
        raise InputError(
            f"{seen[most]} contains the label {most}, though only {len(seen)} different labels occur:"
            f" expected 0, 1, 2, .. without gaps, --ignore-label {most} to exclude it, or --n-labels"
        )
    return most + 1
