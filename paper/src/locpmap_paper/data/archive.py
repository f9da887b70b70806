"""Members of a .tar.gz archive, read in memory: nothing of an archive ever becomes a file.

One pass over the archive; anything but plain files and folders with harmless names makes the whole archive
suspect, whether or not that member is wanted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from fnmatch import translate
from pathlib import PurePosixPath

from locpmap.errors import InputError

MAX_MEMBER = 2**24  # bytes of one member
MAX_TOTAL = 2**29  # bytes of all, headers and padding included
MAX_MEMBERS = 2**16
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def digest(content: bytes, name: str, patterns: Iterable[str]) -> str:
    """A sha256 over the sorted names and checksums of the wanted members: the same however they are packed."""
    found = members(content, name, patterns)
    lines = sorted(f"{hashlib.sha256(data).hexdigest()} {member}\n" for member, data in found)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def members(
    content: bytes, name: str, patterns: Iterable[str], max_total: int = MAX_TOTAL
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the members that match a pattern, in the order of the .tar.gz; errors call it ``name``."""
    wanted = re.compile("|".join(translate(pattern) for pattern in patterns))
    seen: set[str] = set()
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked,
            tarfile.open(fileobj=_Limited(unpacked, name, max_total), mode="r|") as archive,  # type: ignore[call-overload]
        ):
            for member in archive:
                _check(member, name, seen)
                if member.isreg() and wanted.fullmatch(member.name):
                    data = archive.extractfile(member)
                    assert data is not None
                    yield member.name, data.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError, UnicodeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} is damaged or no archive, expected a whole .tar.gz: {error}") from None


class _Limited:
    """Reads no more than so many bytes, however much a small archive unpacks to."""

    def __init__(self, stream: gzip.GzipFile, name: str, most: int) -> None:
        self._stream, self._name, self._most, self._left = stream, name, most, most

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"{self._name} unpacks to more than {self._most} bytes, expected less")
        return data


def _check(member: tarfile.TarInfo, name: str, seen: set[str]) -> None:
    """Refuse what an honest archive does not hold."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
        problem = "expected a path inside the archive"
    elif member.type not in PLAIN or member.issparse():
        problem = "which is a link, a device or a sparse file, expected plain files and folders"
    elif member.size > MAX_MEMBER:
        problem = f"which claims {member.size} bytes, expected at most {MAX_MEMBER}"
    elif str(path) in seen and not member.isdir():
        problem = "twice, expected one of each name"
    elif len(seen) == MAX_MEMBERS:
        problem = f"after {MAX_MEMBERS} others, expected no more members than that"
    else:
        seen.add(str(path))
        return
    raise InputError(f"{name} holds {member.name[:200]!r}, {problem}")
