"""Downloads from a local server that may send wrong data, stall or disconnect, into a shared cache."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from paper.tests.data_source import Handler, Source, cut, dataset_of, described, running_source, whole

from locpmap.errors import InputError, InputTypeError
from locpmap_paper import data
from locpmap_paper.data.cache import locked

pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 1000
OTHER = CONTENT[::-1]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("LOCPMAP_OFFLINE", raising=False)
    with running_source() as source:
        yield source


@pytest.fixture
def tiny(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache path of the only file of a data set with two addresses."""
    file = described("tiny/file.bin", CONTENT, source.address("/first"), source.address("/second"))
    monkeypatch.setitem(data.DATASETS, "tiny", dataset_of("tiny", file))
    monkeypatch.setenv("LOCPMAP_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tiny" / "file.bin"


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"} if folder.exists() else set()


def refused(*words: str, **options: object) -> None:
    with pytest.raises(InputError) as caught:
        data.fetch("tiny", **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def states(folder: Path | None = None) -> list[str]:
    return [check.state for check in data.verify("tiny", folder)]


# downloads


def test_missing_file_is_downloaded_once(source: Source, tiny: Path) -> None:
    source.answers["/first"] = whole(CONTENT)
    assert states() == ["missing"]
    seen: list[tuple[int, int]] = []
    assert data.fetch("tiny", progress=lambda done, total: seen.append((done, total))) == [tiny]
    assert tiny.read_bytes() == CONTENT
    assert states() == ["ok"]
    assert data.fetch("tiny") == [tiny]
    assert source.asked == ["/first"]
    assert left_in(tiny.parent) == {"file.bin"}
    assert seen == sorted(seen)
    assert len(seen) > 2
    assert seen[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("came", [CONTENT[:-1], CONTENT + b"x", OTHER, b""], ids=["short", "long", "other", "empty"])
def test_altered_file_is_replaced(came: bytes, source: Source, tiny: Path) -> None:
    source.answers["/first"] = whole(CONTENT)
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(came)
    (found,) = data.verify("tiny")
    assert found.state == "altered"
    assert "expected" in found.says
    data.fetch("tiny")
    assert tiny.read_bytes() == CONTENT


def test_only_missing_files_are_downloaded(
    source: Source, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (described(f"tiny/{n}", c, source.address(f"/{n}")) for n, c in (("one", CONTENT), ("two", OTHER)))
    monkeypatch.setitem(data.DATASETS, "tiny", dataset_of("tiny", one, two))
    source.answers |= {"/one": whole(CONTENT), "/two": whole(OTHER)}
    seen: list[tuple[int, int]] = []
    data.fetch("tiny", folder=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (2 * len(CONTENT), 2 * len(CONTENT))
    (tmp_path / "tiny" / "two").unlink()
    assert data.fetch("tiny", folder=tmp_path) == [tmp_path / "tiny" / "one", tmp_path / "tiny" / "two"]
    assert source.asked == ["/one", "/two", "/two"]


def endless(handler: Handler) -> None:
    handler.head(None)
    while True:
        handler.wfile.write(CONTENT)


def silent(handler: Handler) -> None:
    handler.head(len(CONTENT))
    handler.wfile.write(CONTENT[:1000])
    handler.server.ended.wait(30)


def mute(handler: Handler) -> None:
    handler.server.ended.wait(30)


def broken(handler: Handler) -> None:
    handler.send_error(503)


BAD = {
    "wrong hash": (whole(OTHER), "has the sha256"),
    "too short": (whole(CONTENT[:-1]), "has 255999 bytes, expected 256000"),
    "too long": (whole(CONTENT + b"x"), "sends more than the expected 256000 bytes"),
    "endless": (endless, "sends more than the expected 256000 bytes"),
    "cut": (cut(CONTENT, 100_000), "cannot be reached or breaks off"),
    "cut at once": (cut(CONTENT, 0), "cannot be reached or breaks off"),
    "silent": (silent, "cannot be reached or breaks off"),
    "mute": (mute, "does not answer within 0.5 seconds"),
    "missing": (None, "answers 404 Not Found"),
    "broken": (broken, "answers 503 Service Unavailable"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_source_leaves_no_file_and_the_next_is_tried(
    kind: str, source: Source, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in ("silent", "mute"):
        monkeypatch.setattr(importlib.import_module("locpmap_paper.data.fetch"), "TIMEOUT", 0.5)
    answer, words = BAD[kind]
    if answer is not None:
        source.answers["/first"] = answer
    refused(str(tiny), source.address("/first"), words, source.address("/second"), "answers 404")
    assert left_in(tiny.parent) == set()
    source.answers["/second"] = whole(CONTENT)
    data.fetch("tiny")
    assert tiny.read_bytes() == CONTENT
    assert left_in(tiny.parent) == {"file.bin"}


def test_bad_download_does_not_touch_the_existing_file(source: Source, tiny: Path) -> None:
    source.answers["/first"] = whole(OTHER)
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(b"mine")
    refused("has the sha256")
    assert tiny.read_bytes() == b"mine"


def test_closed_port_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_source() as source:
        address = source.address("/x")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(data.DATASETS, "tiny", dataset_of("tiny", described("tiny/x", CONTENT, address)))
    refused(address, "cannot be reached or breaks off", folder=tmp_path)


def test_no_compressed_transfer_is_requested(source: Source, tiny: Path) -> None:
    def answer(handler: Handler) -> None:
        assert handler.headers["Accept-Encoding"] == "identity"
        whole(CONTENT)(handler)

    source.answers["/first"] = answer
    data.fetch("tiny")


# no network


def test_offline_uses_only_the_cache(source: Source, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.answers["/first"] = whole(CONTENT)
    refused(str(tiny), "does not exist", "downloads are switched off", offline=True)
    monkeypatch.setenv("LOCPMAP_OFFLINE", "1")
    refused("downloads are switched off")
    assert not source.asked
    assert not tiny.parent.exists()
    data.fetch("tiny", offline=False)
    assert data.fetch("tiny") == [tiny]
    tiny.write_bytes(OTHER)
    refused("has the sha256", "downloads are switched off")
    monkeypatch.setenv("LOCPMAP_OFFLINE", "0")
    data.fetch("tiny")


def test_missing_pooch_is_reported(source: Source, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("locpmap_paper.data.fetch"), "find_spec", lambda name: None)
    refused("pooch is not installed", "pip install '.[all]' ./paper")


# folders


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCPMAP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert data.folder() == tmp_path / "caches" / "locpmap"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert data.folder() == tmp_path / ".cache" / "locpmap"
    monkeypatch.setenv("LOCPMAP_DATA", str(tmp_path / "chosen"))
    assert data.folder() == tmp_path / "chosen"


def test_folders_that_cannot_be_created(source: Source, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    refused(str(tmp_path / "a file"), "cannot be written", folder=tmp_path / "a file")
    refused("cannot be written", folder="/proc/no/such/folder")
    assert not source.asked
    with pytest.raises(InputTypeError, match="folder is 3"):
        data.fetch("tiny", folder=3)  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_folder_without_permission(source: Source, tiny: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused("cannot be written: Permission denied")
    tmp_path.chmod(0o700)


def test_full_disk(source: Source, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(sink: object, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    source.answers["/first"] = whole(CONTENT)
    monkeypatch.setattr(importlib.import_module("locpmap_paper.data.fetch")._Sink, "write", full)
    refused(str(tiny.parent), "cannot be written: No space left on device")
    assert left_in(tiny.parent) == set()


def test_complete_cache_is_only_read(source: Source, tiny: Path) -> None:
    tiny.parent.mkdir(parents=True)
    tiny.write_bytes(CONTENT)
    data.fetch("tiny")
    assert [path.name for path in tiny.parent.iterdir()] == ["file.bin"]  # no lock either


@pytest.mark.parametrize("kind", ["folder", "pipe", "no folder above"])
def test_folders_and_pipes_are_reported_without_blocking(kind: str, source: Source, tiny: Path) -> None:
    source.answers["/first"] = whole(CONTENT)
    if kind == "no folder above":
        tiny.parent.parent.mkdir()
        tiny.parent.write_text("")
        assert states() == ["missing"]
        refused("cannot be written")
        return
    tiny.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(tiny)
    else:
        tiny.mkdir()
    (found,) = data.verify("tiny")
    assert (found.state, found.says.split(",")[0]) == (
        "altered",
        "is not a regular file" if kind == "pipe" else "is a folder",
    )
    if kind == "pipe":
        data.fetch("tiny")
        assert states() == ["ok"]
    else:
        refused("cannot be written")
        assert left_in(tiny.parent) == {"file.bin"}


# several processes

FETCH = """
from paper.tests.data_source import dataset_of, described
from locpmap_paper import data
data.DATASETS["tiny"] = dataset_of("tiny", described("tiny/file.bin", bytes(range(256)) * 1000, {address!r}))
print("ready", flush=True)
print(data.fetch("tiny"))
"""


def fetching(address: str, cache: Path) -> subprocess.Popen[str]:
    code = FETCH.format(address=address)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "LOCPMAP_DATA": str(cache)}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def test_two_processes_share_one_download(source: Source, tiny: Path) -> None:
    begun, resume = threading.Event(), threading.Event()

    def held(handler: Handler) -> None:
        handler.head(len(CONTENT))
        begun.set()
        resume.wait(30)
        handler.wfile.write(CONTENT)

    source.answers["/held"] = held
    cache = tiny.parent.parent
    with fetching(source.address("/held"), cache) as first, fetching(source.address("/held"), cache) as second:
        assert begun.wait(30)
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)  # time for the second process to contact the server, if it were not locked out
        resume.set()
        assert first.wait(30) == second.wait(30) == 0
    assert source.asked == ["/held"]
    assert tiny.read_bytes() == CONTENT


def test_killed_process_releases_the_lock_and_its_partial_file_is_removed(source: Source, tiny: Path) -> None:
    begun = threading.Event()

    def stuck(handler: Handler) -> None:
        handler.head(len(CONTENT))
        handler.wfile.write(CONTENT[:100_000])
        begun.set()
        handler.server.ended.wait(30)

    source.answers |= {"/stuck": stuck, "/first": whole(CONTENT)}
    with fetching(source.address("/stuck"), tiny.parent.parent) as process:
        assert begun.wait(30)
        deadline = time.monotonic() + 10
        while not left_in(tiny.parent) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(InputError, match="is in use by another process"), locked(tiny.parent, patience=0.1):
            pass
        process.send_signal(signal.SIGKILL)
    assert left_in(tiny.parent) == {".file.bin.part"}
    began = time.monotonic()
    data.fetch("tiny")
    assert time.monotonic() - began < 5
    assert left_in(tiny.parent) == {"file.bin"}
