"""The example images of a run, read from ``pictures.npz`` in its folder and checked."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats import PathLike, size_of
from locpmap_paper.report.reading import run_folder
from locpmap_paper.report.record import Level, Record

Pictures = Mapping[str, npt.NDArray[Any]]

MAX_PICTURES, MAX_SCENES = 2**27, 2**30  # bytes; photographs are larger than silhouettes
ODD = (zlib.error, TypeError, MemoryError, OverflowError)  # further exceptions of np.load for damaged files


def read_pictures(folder: PathLike, record: Record) -> Pictures:
    """Return the example images by name: arrays (n, H, W), or (n, H, W, k) for colours or probabilities per label.

    Input and true labels of every level must be present.  A record of scenes may come without pictures, because the
    photographs may not be redistributed; the result is then empty.
    """
    most = MAX_SCENES if record.is_scenes else MAX_PICTURES
    path = run_folder(folder) / "pictures.npz"
    if record.is_scenes and not path.exists():
        return {}
    size_of(path, "the pictures of a run")
    try:
        # Opened here because np.load does not close a damaged file.
        with path.open("rb") as stream, zipfile.ZipFile(stream) as members:
            if sum(member.file_size for member in members.infolist()) > most:
                raise InputError(f"{path} unpacks to more than {most} bytes, expected a few pictures")
        with path.open("rb") as stream, np.load(stream) as file:
            pictures = {name: file[name] for name in file.files}
        wrong = [name for name, picture in pictures.items() if picture.dtype.kind not in "biuf"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, AttributeError, *ODD) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged, expected plain arrays in NumPy's .npz format") from None
    if wrong:
        raise InputError(f"{path} holds {wrong[0]}, which is not numeric, expected arrays of numbers")
    for level in record.levels:
        shown = pictures.get(f"{level.name}/input")
        if shown is None or f"{level.name}/truth" not in pictures:
            raise InputError(f"{path} holds no {level.name}/input and {level.name}/truth, expected both")
        _check_scenes(record, level, pictures, path)
        size = shown.shape[:3]  # n, H, W
        for name, picture in pictures.items():
            last = _last_axis(record, name.removeprefix(f"{level.name}/"))
            wrong_shape = len(size) != 3 or picture.shape != (*size, *last) or 0 in size
            if name.startswith(f"{level.name}/") and wrong_shape:
                axes = ", ".join(("n", "H", "W", *map(str, last)))
                raise InputError(f"{path} holds {name} of shape {picture.shape}, expected ({axes}) like the input")
    return pictures


def _check_scenes(record: Record, level: Level, pictures: Pictures, path: Path) -> None:
    """Check the types: photographs must be uint8 and labels integers, because others would be drawn wrongly."""
    for name, picture in pictures.items() if record.is_scenes else ():
        if name == f"{level.name}/input" and picture.dtype != np.uint8:
            raise InputError(f"{path} holds {name} of {picture.dtype}, expected colours from 0 to 255")
        if name.startswith(f"{level.name}/") and name.endswith(("/truth", "/labels")) and picture.dtype.kind == "f":
            raise InputError(f"{path} holds {name} of {picture.dtype}, expected whole numbers")


def _last_axis(record: Record, name: str) -> tuple[int, ...]:
    """Return the axes after (n, H, W): 3 for photographs, the number of pictured labels for probabilities."""
    if record.is_scenes and name == "input":
        return (3,)
    return (len(record.protocol.pictured),) if record.is_scenes and name.endswith("/probability") else ()
