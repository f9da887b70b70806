"""Verification of data files against their published checksums.

Files are a few megabytes, so each one is read completely and verified before it is parsed.
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
    """The result of verifying one file.

    Attributes:
        file (File): The published file.
        path (Path): Where it is expected.
        state (str): "ok", "missing" or "altered".
        says (str): The state as the end of a sentence that begins with the path.
    """

    file: File
    path: Path
    state: str
    says: str


def verify(name: str, folder: PathLike | None = None) -> list[Check]:
    """Verify every file of a data set.

    An archive whose bytes differ from the known file is unpacked and compared by content, which takes a second or two.

    Args:
        name (str): Name of the data set, a key of ``DATASETS``.
        folder (str or Path, optional): Cache folder; by default :func:`locpmap_paper.data.folder`.

    Returns:
        list of Check: One result per file.

    Example:
        >>> [(check.state, check.says) for check in verify("mnist", "/no/such/folder")][0]
        ('missing', 'does not exist')
    """
    dataset = known_dataset(name)
    try:
        root = root_of(dataset, folder)
    except InputError as error:
        if dataset.package is None:
            raise
        return [Check(file, Path(file.name), "missing", f"does not exist: {error}") for file in dataset.files]
    return [check(file, root / file.name) for file in dataset.files]


def check(file: File, path: Path) -> Check:
    """Compare the file at the path with the published one."""
    return _inspect(file, path)[0]


def read(dataset: Dataset, name: str, given: PathLike | None) -> tuple[bytes, tuple[str, str, int]]:
    """Return the verified content of the file with this base name, and its full name, sha256 and size."""
    (file,) = (file for file in dataset.files if Path(file.name).name == name)
    found, content = _inspect(file, root_of(dataset, given) / file.name)
    if found.state != "ok":
        how = f"install another version of {dataset.package}"
        if dataset.package is None:
            how = f"run `locpmap data fetch {dataset.name}`"
        raise InputError(f"{found.path} {found.says}: {how}")
    return content, (file.name, hashlib.sha256(content).hexdigest(), len(content))


def _inspect(file: File, path: Path) -> tuple[Check, bytes]:
    """Return the check and the content that was checked."""
    try:
        content = _content(file, path)
        _compare(file, path, content)
    except (FileNotFoundError, NotADirectoryError):
        return Check(file, path, "missing", "does not exist"), b""
    except InputError as error:
        return Check(file, path, "altered", str(error).removeprefix(f"{path} ")), b""
    except OSError as error:
        return Check(file, path, "altered", f"cannot be read: {error.strerror}"), b""
    return Check(file, path, "ok", "is as published"), content


def _content(file: File, path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # checked before opening: reading a pipe would block
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
        raise InputError("contains other members than the published archive, expected the same members in any packing")
