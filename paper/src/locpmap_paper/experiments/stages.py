"""A folder of finished stages, so that an interrupted run repeats only missing stages.

Each stage has one small file with its value, the digest of its settings and a checksum of the value.  A file that is
damaged or has other settings counts as missing, and its stage is computed again.
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
    """Return the sha256 of JSON settings; equal settings have equal digests.

    >>> digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(canonical(settings).encode()).hexdigest()


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def resumed(state: Path, make: Callable[[], T]) -> T:
    """Return the result of `make`; if it rejects the checkpoint `state`, remove it and restart."""
    try:
        return make()
    except InputError:
        if not state.exists():
            raise
        state.unlink()  # from other data or settings, or damaged
        return make()


class Stages:
    """Stored values and arrays of finished stages, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, suffix: str) -> Path:
        """Return the path of a stage's file and create its folder."""
        path = self.folder / f"{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def find(self, name: str, settings: Settings) -> Any:
        """Return the value of a finished stage, or None."""
        try:
            stage = json.loads(self.path(name, ".json").read_bytes())
            sound = stage["settings"] == digest(settings) and stage["sha256"] == digest({"value": stage["value"]})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return stage["value"] if sound else None

    def store(self, name: str, settings: Settings, value: Any) -> Any:
        """Store a JSON value; return it as :meth:`find` would."""
        value = json.loads(canonical(value))
        stage = {"settings": digest(settings), "sha256": digest({"value": value}), "value": value}
        write_bytes(self.path(name, ".json"), [json.dumps(stage).encode()])
        return value

    def value(self, name: str, settings: Settings, make: Callable[[], Any]) -> Any:
        """Return the stored value, or store and return the result of `make`."""
        found = self.find(name, settings)
        return self.store(name, settings, make()) if found is None else found

    def find_arrays(self, name: str, settings: Settings) -> dict[str, Array] | None:
        """Return the arrays of a finished stage, or None."""
        try:
            arrays, header = read_model(self.path(name, ".safetensors"))
        except InputError:
            return None
        return arrays if header.get("settings") == digest(settings) else None

    def arrays(self, name: str, settings: Settings, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """Return the stored arrays, or store the result of `make` in single precision and return it."""
        found = self.find_arrays(name, settings)
        if found is None:
            found = {key: np.asarray(array, np.float32) for key, array in make().items()}
            write_model(self.path(name, ".safetensors"), found, {"settings": digest(settings)})
        return found
