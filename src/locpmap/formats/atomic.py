"""Write files completely or not at all, one by one or several together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

from locpmap.errors import InputError, InputTypeError

PathLike = str | os.PathLike[str]

# Drafts and their targets, inside `together`.
_waiting: ContextVar[list[tuple[Path, Path]] | None] = ContextVar("_waiting", default=None)


@contextmanager
def together(record: Path) -> Iterator[None]:
    """Put all files that are written inside into their places at the end, or none of them after an error.

    The record of an earlier run is removed before the first file is replaced.
    """
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
    """Write ASCII text as :func:`write_bytes` does."""
    write_bytes(path, (piece.encode("ascii") for piece in pieces))


def write_bytes(path: PathLike, pieces: Iterable[bytes]) -> None:
    """Write to a temporary file in the target's folder and rename it to the target when it is complete.

    What cannot be replaced (a device, a pipe, standard output) is written to directly.
    """
    target = checked_target(path)
    descriptor = _descriptor(target)
    try:
        if descriptor is not None:  # by its number: opened anew, a file it leads to would be cut and overwritten
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
    draft = target.with_name(f".{target.name[:40]}.{uuid4().hex[:8]}.part")  # shorter than the longest name allowed
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
    """Return the path; refuse one that cannot name a file."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InputTypeError(f"path is {path!r}, expected the name of a file")
    if "\0" in name:
        raise InputError(f"path is {name!r}, expected the name of a file without a null character")
    return Path(name)


def checked_target(path: PathLike, *inputs: PathLike | None) -> Path:
    """Return the file that a path stands for; refuse one that cannot be written or is one of the inputs."""
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
        raise InputError(f"{path} is also read from, expected another file to write to")
    return target


def _is_special(path: Path) -> bool:
    """Return whether the path is there and neither a file nor a folder: a device, a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of the open file that a path such as /dev/stdout leads to."""
    if not path.exists():
        return None
    own = (f"/proc/{os.getpid()}/fd", "/dev/fd")
    while os.path.realpath(path.parent) not in own:
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return int(path.name)
