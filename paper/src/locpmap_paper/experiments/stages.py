"""A folder of finished stages, so that a run that was interrupted does only what is missing.

A stage is one small file, named by what it is.  It carries the digest of the settings it was made under, and a checksum
of its own: a file of other settings, or one that was damaged, counts as missing and is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats import read_model, write_bytes, write_model

Array = npt.NDArray[Any]
Settings = dict[str, Any]
T = TypeVar("T")


def digest(settings: Settings) -> str:
    """Of what JSON can hold, the same for equal settings.

    >>> digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(canonical(settings).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON in one spelling."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def resumed(state: Path, make: Callable[[], T]) -> T:
    """What ``make`` gives; where it refuses the state to go on from, that is removed, and it begins anew."""
    try:
        return make()
    except InputError:
        if not state.exists():
            raise
        state.unlink()  # of other data or settings, or damaged
        return make()


class Stages:
    """Values and arrays that were made once, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, suffix: str) -> Path:
        """Where a stage is kept; its folder is made."""
        path = self.folder / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def find(self, name: str, settings: Settings) -> Any:
        """The value of a finished stage, or None."""
        try:
            stage = json.loads(self.path(name, ".json").read_bytes())
            sound = stage["settings"] == digest(settings) and stage["sha256"] == digest({"value": stage["value"]})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return stage["value"] if sound else None

    def keep(self, name: str, settings: Settings, value: Any) -> Any:
        """Write a value of what JSON can hold; returns it as it would be found again."""
        value = json.loads(canonical(value))
        stage = {"settings": digest(settings), "sha256": digest({"value": value}), "value": value}
        write_bytes(self.path(name, ".json"), [json.dumps(stage).encode()])
        return value

    def value(self, name: str, settings: Settings, make: Callable[[], Any]) -> Any:
        """What was kept, or what ``make`` gives, which is kept."""
        found = self.find(name, settings)
        return self.keep(name, settings, make()) if found is None else found

    def find_arrays(self, name: str, settings: Settings) -> dict[str, Array] | None:
        """The arrays of a finished stage, or None."""
        try:
            arrays, header = read_model(self.path(name, ".safetensors"))
        except InputError:
            return None
        return arrays if header.get("settings") == digest(settings) else None

    def arrays(self, name: str, settings: Settings, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """As :meth:`value`, for arrays, kept in single precision."""
        found = self.find_arrays(name, settings)
        if found is None:
            found = {key: np.asarray(array, np.float32) for key, array in make().items()}
            write_model(self.path(name, ".safetensors"), found, {"settings": digest(settings)})
        return found
