"""Downloads: each file is verified under a temporary name before it replaces the target."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from locpmap.errors import InputError, LocpmapError
from locpmap_paper.data.cache import PathLike, is_offline, locked
from locpmap_paper.data.registry import File, known_dataset
from locpmap_paper.data.verify import check, verify

Progress = Callable[[int, int], None]

TIMEOUT = 30  # seconds without data
CHUNK = 2**16  # bytes


def fetch(
    name: str, *, folder: PathLike | None = None, offline: bool | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download the missing or altered files of a data set and return the paths of all its files.

    Processes that share a cache wait for each other.  If all files are valid, nothing is written.

    Args:
        name (str): Name of the data set, a key of ``DATASETS``.
        folder (str or Path, optional): Cache folder, created if needed; by default
            :func:`locpmap_paper.data.folder`.
        offline (bool, optional): Whether to raise an error instead of downloading; by default, whether
            ``$LOCPMAP_OFFLINE`` is set.
        progress (callable, optional): Function called with (bytes done, total bytes).

    Returns:
        list of Path: The paths of all files of the data set.

    Raises:
        InputError: If a file cannot be downloaded, or its content differs from the published one.

    See Also:
        :func:`locpmap_paper.data.verify`
    """
    dataset = known_dataset(name)
    found = verify(name, folder)
    wrong = [item for item in found if item.state != "ok"]
    if wrong:
        first = f"{wrong[0].path} {wrong[0].says}"
        if dataset.package is not None:
            raise InputError(first)
        if is_offline(offline):
            raise InputError(f"{first}, expected it in the cache because downloads are switched off")
        if find_spec("pooch") is None:
            raise InputError(
                f"{first}, and pooch is not installed to download it: pip install '.[all]' ./paper in a clone"
            )
        _get_all([(item.file, item.path) for item in wrong], progress or _silent)
    return [item.path for item in found]


def _silent(done: int, total: int) -> None:
    """Ignore the progress."""


def _get_all(wanted: list[tuple[File, Path]], progress: Progress) -> None:
    place = wanted[0][1].parent
    total, done = sum(file.n_bytes for file, _ in wanted), 0
    with locked(place):
        try:
            for file, path in wanted:
                if check(file, path).state != "ok":  # another process may have fetched it meanwhile
                    _get(file, path, lambda n, before=done: progress(before + n, total))  # type: ignore[misc]
                done += file.n_bytes
                progress(done, total)
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}") from None


def _get(file: File, path: Path, progress: Callable[[int], None]) -> None:
    """Download the file from the first address that provides it."""
    draft = path.with_name(f".{path.name}.part")  # fixed name: the folder is locked, and leftovers are overwritten
    reasons = []
    for address in file.addresses:
        try:
            with draft.open("wb") as stream:
                _download(address, _Sink(stream, file.most_bytes, progress))
            found = check(file, draft)
            if found.state == "ok":
                draft.replace(path)
                return
            reasons.append(f"{address} {found.says}")
        except _DownloadError as error:
            reasons.append(f"{address} {error}")
        finally:
            draft.unlink(missing_ok=True)
    raise InputError(f"{path} cannot be downloaded: {'; '.join(reasons)}")


def _download(address: str, sink: _Sink) -> None:
    import requests
    from pooch import HTTPDownloader
    from urllib3.exceptions import HTTPError

    responses: list[requests.Response] = []
    download = HTTPDownloader(
        timeout=TIMEOUT,
        chunk_size=CHUNK,
        headers={"Accept-Encoding": "identity"},  # otherwise a server may compress the file again
        hooks={"response": lambda response, **_: responses.append(response)},
    )
    try:
        download(address, sink, None)
    except requests.HTTPError as error:
        raise _DownloadError(f"answers {error.response.status_code} {error.response.reason}") from None
    except requests.Timeout:
        raise _DownloadError(f"does not answer within {TIMEOUT} seconds") from None
    except (requests.RequestException, HTTPError) as error:
        raise _DownloadError(f"cannot be reached or breaks off ({type(error).__name__})") from None
    finally:
        for response in responses:  # pooch does not close a response that it did not read to the end
            response.close()


class _DownloadError(LocpmapError):
    """A download failed or has the wrong content."""


class _Sink:
    """A file object for downloads that reports progress and raises an error beyond the size limit."""

    def __init__(self, stream: BinaryIO, most: int, progress: Callable[[int], None]) -> None:
        self._stream, self._most, self._progress = stream, most, progress
        self._n_bytes = 0

    def write(self, data: bytes) -> None:
        self._n_bytes += len(data)
        if self._n_bytes > self._most:
            raise _DownloadError(f"sends more than the expected {self._most} bytes")
        self._stream.write(data)
        self._progress(self._n_bytes)

    def flush(self) -> None:
        """Do nothing; pooch calls this after every chunk."""
