"""Atomic writes: a file, or a group of files, is written completely or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

from locpmap.errors import InputError, InputTypeError

PathLike = str | os.PathLike[str]

# Temporary files and their targets, inside `together`.
_waiting: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_waiting", default=None)


@contextmanager
def together(record: Path) -> Iterator[None]:
    """Move all files of this context to their targets at its end, or none after an error; first remove ``record``."""
    drafts: list[tuple[Path, Path]] = []
    token = _waiting.set(drafts)
    try:
        yield
        record.unlink(missing_ok=True)
        for draft, target in drafts:
            draft.replace(target)
    except OSError as error:
        raise InputError(f"{error.filename or record} cannot be written: {error.strerror}") from None
    finally:
        _waiting.reset(token)
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)


def write_text(path: PathLike, pieces: Iterable[str]) -> None:
    """Write ASCII text with :func:`write_bytes`."""
    write_bytes(path, (piece.encode("ascii") for piece in pieces))


def write_bytes(path: PathLike, pieces: Iterable[bytes]) -> None:
    """Write a file completely or not at all.

    The data go to a temporary file in the same folder, which is then renamed to the target.  Devices, pipes and
    standard output cannot be replaced; they are written to directly.
    """
    target = checked_target(path)
    descriptor = _descriptor(target)
    try:
        if descriptor is not None:  # opening it by name would truncate a redirected file
            with open(descriptor, "wb", closefd=False) as file:
                file.writelines(pieces)
        elif _is_special(target):
            with target.open("wb") as file:
                file.writelines(pieces)
        else:
            _replace(target, pieces)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _replace(target: Path, pieces: Iterable[bytes]) -> None:
    draft = target.with_name(f".{target.name[:40]}.{uuid4().hex[:8]}.part")  # within the limit on name lengths
    waiting, handed_over = _waiting.get(), False
    try:
        with draft.open("wb") as file:
            file.writelines(pieces)
        if waiting is None:
            draft.replace(target)
        else:
            waiting.append((draft, target))
            handed_over = True
    finally:
        if not handed_over:
            draft.unlink(missing_ok=True)


def checked_path(path: Any) -> Path:
    """Return the argument as a ``Path``; raise if it is not a path or contains a null character."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InputTypeError(f"path is {path!r}, expected the name of a file")
    if "\0" in name:
        raise InputError(f"path is {name!r}, expected the name of a file without a null character")
    return Path(name)


def checked_target(path: PathLike, *inputs: PathLike | None) -> Path:
    """Return the file to write to, with links resolved; raise if it is one of ``inputs`` or cannot be written."""
    given = checked_path(path)
    try:
        return _writable(given, inputs)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _writable(path: Path, inputs: Iterable[PathLike | None]) -> Path:
    direct = _is_special(path) or _descriptor(path) is not None
    target = path if direct else Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{path} is a directory, expected a file to write to")
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {target.parent}")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: permission denied")
    if target.exists() and any(
        other is not None and Path(other).exists() and target.samefile(other) for other in inputs
    ):
        raise InputError(f"{path} is also an input, expected another file to write to")
    return target


def _is_special(path: Path) -> bool:
    """Return whether the path exists and is a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _descriptor(path: Path) -> int | None:
    """Return the file descriptor that a path such as /dev/stdout refers to, or None."""
    if not path.exists():
        return None
    own = (f"/proc/{os.getpid()}/fd", "/dev/fd")
    while os.path.realpath(path.parent) not in own:
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return int(path.name)
