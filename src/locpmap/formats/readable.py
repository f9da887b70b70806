"""Files that can be read at all."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, checked_path


def size_of(path: PathLike, expected: str) -> int:
    """The bytes of a regular file; whatever is none, or is empty, is refused by name."""
    try:
        status = checked_path(path).stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InputError(f"{path} is {kind}, expected {expected}")
    if status.st_size == 0:
        raise InputError(f"{path} is empty, expected {expected}")
    return status.st_size


def checksum(path: PathLike) -> str:
    """The sha256 of a regular file's content, by which it is known again whatever it is called; a second per GB."""
    size_of(path, "a file with content")
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
