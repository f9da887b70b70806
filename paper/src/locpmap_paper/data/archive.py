"""Members of a .tar.gz archive, read in memory without extracting files.

The archive is read in one pass.  It is rejected if any member, requested or not, is not a plain file or folder with a
safe name.
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
MAX_TOTAL = 2**29  # bytes of the unpacked archive, including headers and padding
MAX_MEMBERS = 2**16
PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


def digest(content: bytes, name: str, patterns: Iterable[str]) -> str:
    """Return a sha256 of the sorted names and checksums of the matching members.

    It is independent of member order and compression.
    """
    found = members(content, name, patterns)
    lines = sorted(f"{hashlib.sha256(data).hexdigest()} {member}\n" for member, data in found)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def members(
    content: bytes, name: str, patterns: Iterable[str], max_total: int = MAX_TOTAL
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members that match a pattern; errors refer to the archive as `name`."""
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
        raise InputError(f"{name} is damaged or not an archive, expected a complete .tar.gz: {error}") from None


class _Limited:
    """A stream that raises an error after the given number of bytes, to stop decompression bombs."""

    def __init__(self, stream: gzip.GzipFile, name: str, most: int) -> None:
        self._stream, self._name, self._most, self._left = stream, name, most, most

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"{self._name} unpacks to more than {self._most} bytes, expected less")
        return data


def _check(member: tarfile.TarInfo, name: str, seen: set[str]) -> None:
    """Reject members with unsafe names, types or sizes."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
        problem = "expected a path inside the archive"
    elif member.type not in PLAIN or member.issparse():
        problem = "which is a link, a device or a sparse file, expected plain files and folders"
    elif member.size > MAX_MEMBER:
        problem = f"which claims {member.size} bytes, expected at most {MAX_MEMBER}"
    elif str(path) in seen and not member.isdir():
        problem = "twice, expected unique names"
    elif len(seen) == MAX_MEMBERS:
        problem = f"after {MAX_MEMBERS} others, expected at most {MAX_MEMBERS} members"
    else:
        seen.add(str(path))
        return
    raise InputError(f"{name} holds {member.name[:200]!r}, {problem}")
