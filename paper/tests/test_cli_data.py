"""``locpmap data``: output, errors and exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from paper.tests.data_source import Source, dataset_of, described, running_source, whole
from tests.command import Run

from locpmap_paper import data

CONTENT = b"content" * 100

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Source]:
    """Start a server with the only file of the data set "tiny"; the cache is empty."""
    pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("LOCPMAP_DATA", str(tmp_path))
    monkeypatch.delenv("LOCPMAP_OFFLINE", raising=False)
    with running_source() as source:
        source.answers["/file"] = whole(CONTENT)
        file = described("tiny/file.bin", CONTENT, source.address("/file"))
        monkeypatch.setitem(data.DATASETS, "tiny", dataset_of("tiny", file))
        yield source


def test_list_shows_size_licence_and_citation(source: Source, tmp_path: Path, capsys: Capture) -> None:
    run = Run(capsys, "data", "list")
    assert run.status == 0
    for dataset in data.DATASETS.values():
        for words in (dataset.name, dataset.title, dataset.licence, dataset.citation, dataset.shape):
            assert words in run.out
    assert str(tmp_path) in run.out
    assert "test data; 0.0 MB, missing" in run.out


def test_list_as_json(source: Source, tmp_path: Path, capsys: Capture) -> None:
    report = json.loads(Run(capsys, "data", "list", "--json").out)
    assert report["folder"] == str(tmp_path)
    tiny = {dataset["name"]: dataset for dataset in report["datasets"]}["tiny"]
    assert tiny["state"] == "missing"
    assert tiny["files"][0]["n_bytes"] == tiny["n_bytes"] == len(CONTENT)
    assert tiny["files"][0]["addresses"] == [source.address("/file")]


def test_fetch_then_verify(source: Source, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "tiny" / "file.bin"
    run = Run(capsys, "data", "fetch", "tiny")
    assert (run.status, run.out, run.err) == (0, f"{path}\n", "")
    assert path.read_bytes() == CONTENT
    assert json.loads(Run(capsys, "data", "fetch", "tiny", "--json").out) == {"tiny": [str(path)]}
    run = Run(capsys, "data", "verify", "tiny")
    assert (run.status, run.out) == (0, f"ok       {path}\n")
    (check,) = json.loads(Run(capsys, "data", "verify", "tiny", "--json").out)["tiny"]
    assert check == {"file": "tiny/file.bin", "path": str(path), "state": "ok", "says": "is as published"}


def test_verify_reports_altered_files(source: Source, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "tiny" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT[1:])
    for names in ((), ("tiny",)):
        run = Run(capsys, "data", "verify", *names)
        assert run.status == 2
        assert f"altered  {path} has 699 bytes, expected 700\n" in run.out
        assert run.err == f"locpmap: {path} of tiny has 699 bytes, expected 700\n"


def test_verify_fails_for_missing_files_of_given_sets_only(
    source: Source, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(data.DATASETS, "digits")
    run = Run(capsys, "data", "verify")
    assert run.status == 0
    assert [line.split()[0] for line in run.out.splitlines()] == ["missing"] * 8
    run = Run(capsys, "data", "verify", "tiny")
    assert run.status == 2
    assert "file.bin of tiny does not exist" in run.err
    assert list(tmp_path.iterdir()) == []


def test_folder_option(source: Source, tmp_path: Path, capsys: Capture) -> None:
    Run(capsys, "data", "fetch", "tiny", "--folder", tmp_path / "else" / "where")
    assert (tmp_path / "else" / "where" / "tiny" / "file.bin").read_bytes() == CONTENT
    assert Run(capsys, "data", "verify", "tiny", "--folder", tmp_path / "else" / "where").status == 0
    assert Run(capsys, "data", "verify", "tiny").status == 2


def test_bad_input_is_refused(source: Source, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(capsys, "data", "fetch", "tiny", "mnits").check_refusal("unknown data set 'mnits': did you mean 'mnist'?")
    assert not source.asked  # names are checked before downloads
    Run(capsys, "data", "fetch", "tiny", "--offline").check_refusal("file.bin", "downloads are switched off")
    monkeypatch.setenv("LOCPMAP_OFFLINE", "1")
    Run(capsys, "data", "fetch", "tiny").check_refusal("downloads are switched off")
    monkeypatch.delenv("LOCPMAP_OFFLINE")
    Run(capsys, "data", "verify", "nothing").check_refusal("unknown data set 'nothing'")
    Run(capsys, "data", "fetch").check_refusal("NAME")
    Run(capsys, "data").check_refusal("command")
    source.answers["/file"] = whole(CONTENT[::-1])
    Run(capsys, "data", "fetch", "tiny").check_refusal("file.bin", "cannot be downloaded", "sha256", "expected")
    (tmp_path / "file").write_text("")
    Run(capsys, "data", "fetch", "tiny", "--folder", tmp_path / "file").check_refusal("cannot be written")
