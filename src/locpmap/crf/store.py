"""Checkpoint of a fit on disk."""

import os
from pathlib import Path
from typing import Any

from locpmap.errors import InputError
from locpmap.formats.model_file import read_model, write_model
from locpmap.learning.checkpoint import State


class FileStore:
    """Storage of a fit's state in a file whose header identifies the fit."""

    def __init__(self, path: str | os.PathLike[str], fit: dict[str, Any]) -> None:
        self.path, self.fit = Path(path), fit

    def load(self) -> State | None:
        """Return the state, or None if there is no file; raise InputError for the state of another fit."""
        if not self.path.exists():
            return None
        arrays, header = read_model(self.path)
        if header.get("fit") != self.fit:
            raise InputError(
                f"checkpoint {self.path} belongs to another fit, expected a new path or the same data and options"
            )
        return arrays

    def save(self, state: State) -> None:
        write_model(self.path, state, {"kind": "checkpoint", "fit": self.fit})

    def remove(self) -> None:
        """Remove the file after the fit has ended."""
        self.path.unlink(missing_ok=True)
