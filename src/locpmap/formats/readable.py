"""Checks of input files, with errors that name the file."""

import hashlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locpmap.errors import InputError, LocpmapError
from locpmap.formats.atomic import PathLike, checked_path


def size_of(path: PathLike, expected: str) -> int:
    """Return the size of a regular file in bytes.

    Args:
        path (str or PathLike): The file.
        expected (str): Description of the expected file, for the error sentence.

    Raises:
        InputError: If the path is missing, empty or no regular file.

    Example:
        >>> from locpmap.formats import size_of
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"content")
        ...     file.flush()
        ...     size_of(file.name, "a text file")
        7
    """
    with reading(path, expected):
        status = checked_path(path).stat()
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InputError(f"{path} is {kind}, expected {expected}")
    if status.st_size == 0:
        raise InputError(f"{path} is empty, expected {expected}")
    return status.st_size


def checksum(path: PathLike) -> str:
    """Return the sha256 of a regular file; this takes about a second per GB."""
    size_of(path, "a file with content")
    with reading(path), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason(error: BaseException) -> str:
    """Return the first line of another package's error message, at most 100 characters."""
    message = getattr(error, "strerror", None) or str(error)
    return str((message.splitlines() or [type(error).__name__])[0][:100])


@contextmanager
def reading(path: PathLike, expected: str = "a file") -> Iterator[None]:
    """Convert an `OSError` raised in this context to an `InputError` that names the file and what was expected."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, expected {expected}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory, expected {expected}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Prefix errors raised in this context with the name of the file."""
    try:
        yield
    except LocpmapError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
