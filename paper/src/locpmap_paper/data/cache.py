"""The folder of data files, its lock, and the setting that forbids downloads."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from locpmap.errors import InputError, InputTypeError
from locpmap_paper.data.registry import Dataset

PathLike = str | os.PathLike[str]

PATIENCE = 600.0  # seconds to wait for the lock


def folder() -> Path:
    """Return the cache folder of the data sets.

    This is ``$LOCPMAP_DATA`` if set, else ``locpmap`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Returns:
        Path: The folder, which may not exist yet.

    Raises:
        InputError: If the user has no home folder and no folder is set.
    """
    if chosen := os.environ.get("LOCPMAP_DATA"):
        return Path(chosen)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # the XDG standard ignores relative paths
        return caches / "locpmap"
    try:
        return Path.home() / ".cache" / "locpmap"
    except RuntimeError:
        raise InputError("there is no home folder for the data, expected a folder in $LOCPMAP_DATA") from None


def is_offline(offline: bool | None) -> bool:
    """Return `offline` if given, else whether ``$LOCPMAP_OFFLINE`` is set to anything but 0."""
    return os.environ.get("LOCPMAP_OFFLINE", "") not in ("", "0") if offline is None else offline


def root_of(dataset: Dataset, given: PathLike | None) -> Path:
    """Return the folder with a data set's files: that of its package, the given one, or the cache."""
    if dataset.package is not None:
        spec = find_spec(dataset.package)
        if spec is None or spec.origin is None:
            raise InputError(
                f"{dataset.name} is part of {dataset.package}, which is not installed:"
                " pip install '.[all]' ./paper in a clone"
            )
        return Path(spec.origin).parent.parent
    if given is None:
        return folder()
    name = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InputTypeError(f"folder is {given!r}, expected the name of a folder")
    return Path(name)


@contextmanager
def locked(place: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Create the folder and lock it for this process.

    The lock is an operating-system lock on a file ``.lock``.  It is released when the process ends, even if it crashes.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"{place} cannot be written: {error.strerror}") from None
    try:
        _acquire(lock, place, time.monotonic() + patience)
        yield
    finally:
        os.close(lock)


def _acquire(lock: int, place: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise InputError(f"{place} is in use by another process, expected it to be free by now") from None
        except OSError as error:
            raise InputError(f"{place} cannot be locked: {error.strerror}") from None
        time.sleep(0.05)
