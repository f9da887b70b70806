"""Whether files are what was published.

Every file is a few megabytes, so it is read whole, checked, and only then looked into.
"""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from locpmap.errors import InputError
from locpmap_paper.data.archive import digest
from locpmap_paper.data.cache import PathLike, root_of
from locpmap_paper.data.registry import Dataset, File, known_dataset


@dataclass(frozen=True)
class Check:
    """What is in a file's place: ``state`` is "ok", "missing" or "altered", and ``says`` puts it in words."""

    file: File
    path: Path
    state: str
    says: str


def verify(name: str, folder: PathLike | None = None) -> list[Check]:
    """Look at every file of a data set; an archive in another packing than the known one takes a second or two.

    >>> [(check.state, check.says) for check in verify("mnist", "/no/such/folder")][0]
    ('missing', 'is not there')

    Args:
        name: of the data set, a key of ``DATASETS``.
        folder: the cache, :func:`locpmap_paper.data.folder` by default.
    """
    dataset = known_dataset(name)
    try:
        root = root_of(dataset, folder)
    except InputError as error:
        if dataset.package is None:
            raise
        return [Check(file, Path(file.name), "missing", f"is not there: {error}") for file in dataset.files]
    return [check(file, root / file.name) for file in dataset.files]


def check(file: File, path: Path) -> Check:
    """Compare what is at the path with what is known of the file."""
    return _inspect(file, path)[0]


def read(dataset: Dataset, name: str, given: PathLike | None) -> tuple[bytes, tuple[str, str, int]]:
    """The checked content of the file with that last name; and its whole name, sha256 and size, for the record."""
    (file,) = (file for file in dataset.files if Path(file.name).name == name)
    found, content = _inspect(file, root_of(dataset, given) / file.name)
    if found.state != "ok":
        source = f"another version of {dataset.package}" if dataset.package else f"`locpmap data fetch {dataset.name}`"
        raise InputError(f"{found.path} {found.says}; {source} brings it")
    return content, (file.name, hashlib.sha256(content).hexdigest(), len(content))


def _inspect(file: File, path: Path) -> tuple[Check, bytes]:
    """The check, and the content that was checked."""
    try:
        content = _content(file, path)
        _compare(file, path, content)
    except (FileNotFoundError, NotADirectoryError):
        return Check(file, path, "missing", "is not there"), b""
    except InputError as error:
        return Check(file, path, "altered", str(error).removeprefix(f"{path} ")), b""
    except OSError as error:
        return Check(file, path, "altered", f"cannot be read: {error.strerror}"), b""
    return Check(file, path, "ok", "is as published"), content


def _content(file: File, path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # looked at before opening: a pipe would wait for ever
        raise InputError(f"is {'a folder' if stat.S_ISDIR(status.st_mode) else 'not a regular file'}, expected a file")
    if status.st_size > file.most_bytes or (file.members is None and status.st_size != file.n_bytes):
        raise InputError(f"has {status.st_size} bytes, expected {file.n_bytes}")
    return path.read_bytes()


def _compare(file: File, path: Path, content: bytes) -> None:
    came = hashlib.sha256(content).hexdigest()
    if came == file.sha256:
        return
    if file.members is None:
        raise InputError(f"has the sha256 {came}, expected {file.sha256}")
    if digest(content, str(path), file.members.patterns) != file.members.sha256:
        raise InputError("holds other members than were published, expected the same in any packing")
