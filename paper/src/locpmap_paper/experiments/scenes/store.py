"""Unary scores of scenes on disk, one file per scene."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats import PathLike, read_array, write_array

Scores = npt.NDArray[np.float32]

NAME = re.compile(r"\w[\w.-]*", re.ASCII)  # safe file names, which cannot leave the folder
HALF = float(np.finfo(np.float16).max)


class UnaryStore(Mapping[str, Scores]):
    """A mapping from scene names to scores (H, W, n_labels) in float32: log-probabilities or logits.

    Scores are stored in half precision, 1.2 MB for a scene of 320 × 240 with 8 labels, and read on access.

    Args:
        folder: Folder of the files, created with the first scene.
    """

    def __init__(self, folder: PathLike) -> None:
        self.folder = Path(folder)

    def put(self, name: str, scores: npt.NDArray[Any]) -> None:
        """Store the scores of a scene atomically."""
        path = self._path(name)
        if path is None:
            raise InputError(f"name is {name!r}, expected letters, digits, '_', '-' and '.'")
        if scores.ndim != 3 or 0 in scores.shape:
            raise InputError(f"scores of {name} have shape {scores.shape}, expected (height, width, labels)")
        if not (np.abs(scores) <= HALF).all():
            raise InputError(
                f"scores of {name} are not finite or too large for half precision, expected values within ±{HALF:.0f}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_array(path, scores.astype(np.float16))

    def __getitem__(self, name: str) -> Scores:
        if name not in self:
            raise KeyError(name)
        return read_array(self._path(name) or "").astype(np.float32)

    def __contains__(self, name: object) -> bool:
        path = self._path(name)
        return path is not None and path.is_file()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.npy") if not path.name.startswith(".")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: object) -> Path | None:
        return self.folder / f"{name}.npy" if isinstance(name, str) and NAME.fullmatch(name) else None
