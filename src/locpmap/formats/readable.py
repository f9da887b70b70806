"""Files that can be read at all."""

from __future__ import annotations

import stat

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
