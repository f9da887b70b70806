"""Downloads: into a file beside the target, checked, and only then put in its place."""

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

TIMEOUT = 30  # seconds without a byte
CHUNK = 2**16  # bytes


def fetch(
    name: str, *, folder: PathLike | None = None, offline: bool | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download those files of a data set that are missing or altered; return the paths of all.

    Processes that share a cache take turns.  A cache that has everything is only read.

    Args:
        name: of the data set, a key of ``DATASETS``.
        folder: the cache, :func:`locpmap_paper.data.folder` by default; made if need be.
        offline: raise an error rather than use the network; by default whether ``$LOCPMAP_OFFLINE`` says so.
        progress: called with the bytes that are done and the bytes to be done.
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
            raise InputError(f"{first}, and pooch is not installed to download it: pip install locpmap-paper")
        _get_all([(item.file, item.path) for item in wrong], progress or _silent)
    return [item.path for item in found]


def _silent(done: int, total: int) -> None:
    """For callers who do not want to know."""


def _get_all(wanted: list[tuple[File, Path]], progress: Progress) -> None:
    place = wanted[0][1].parent
    total, done = sum(file.n_bytes for file, _ in wanted), 0
    with locked(place):
        try:
            for file, path in wanted:
                if check(file, path).state != "ok":  # another process may have brought it meanwhile
                    _get(file, path, lambda n, before=done: progress(before + n, total))  # type: ignore[misc]
                done += file.n_bytes
                progress(done, total)
        except OSError as error:
            raise InputError(f"{place} cannot be written: {error.strerror}") from None


def _get(file: File, path: Path, progress: Callable[[int], None]) -> None:
    """From the first address that has the file."""
    draft = path.with_name(f".{path.name}.part")  # one name for all: the lock is held, and a dead one's is taken over
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
        except _NotThereError as error:
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
        headers={"Accept-Encoding": "identity"},  # else a server may pack the file once more
        hooks={"response": lambda response, **_: responses.append(response)},
    )
    try:
        download(address, sink, None)
    except requests.HTTPError as error:
        raise _NotThereError(f"answers {error.response.status_code} {error.response.reason}") from None
    except requests.Timeout:
        raise _NotThereError(f"does not answer within {TIMEOUT} seconds") from None
    except (requests.RequestException, HTTPError) as error:
        raise _NotThereError(f"cannot be reached or breaks off ({type(error).__name__})") from None
    finally:
        for response in responses:  # pooch leaves it open where it does not read to the end
            response.close()


class _NotThereError(LocpmapError):
    """An address that does not give what it should."""


class _Sink:
    """Where a download is written: counts its bytes and ends it when there are too many."""

    def __init__(self, stream: BinaryIO, most: int, progress: Callable[[int], None]) -> None:
        self._stream, self._most, self._progress = stream, most, progress
        self._n_bytes = 0

    def write(self, data: bytes) -> None:
        self._n_bytes += len(data)
        if self._n_bytes > self._most:
            raise _NotThereError(f"sends more than {self._most} bytes, expected no more")
        self._stream.write(data)
        self._progress(self._n_bytes)

    def flush(self) -> None:
        """Called by pooch after every piece; the stream does it in its own time."""
