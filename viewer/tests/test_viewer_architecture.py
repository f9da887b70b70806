"""Rules of the viewer's package: public imports only, a light import for help, and no unpickling."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.command import Run
from tests.package_rules import check_files, is_public, library_imports

import locpmap
import locpmap_viewer

SOURCE = Path(locpmap_viewer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = ("torch", "numba", "scipy", "PIL", "safetensors", "fastapi", "starlette", "uvicorn")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_only_public_names_of_the_library_are_imported(file: Path) -> None:
    assert not [found for found in library_imports(file.read_text()) if not is_public(*found)]


# the command


def test_command_is_installed() -> None:
    assert "view" in {point.name for point in entry_points(group="locpmap.commands")}, "pip install -e viewer"


def test_help_lists_the_command_without_heavy_imports() -> None:
    code = f"""
import sys
from locpmap.cli import main
for words in ([], ["view"]):
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert not end.code, words
    if not words:
        assert not [name for name in sys.modules if name.startswith("locpmap_viewer")]
print("LOADED", *[m for m in {HEAVY!r} if m in sys.modules])"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"
    for line in ("view Explore refined", "Usage: locpmap view"):
        assert line in " ".join(done.stdout.split())


@pytest.mark.parametrize("words", [["view"], ["view", "--help"]], ids=" ".join)
def test_command_without_this_package_names_the_package_to_install(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    Run(capsys, *words).check_refusal("locpmap view needs locpmap-viewer", "pip install . ./viewer in a clone")
    assert "view" in Run(capsys, "--help").out


# rules


@pytest.mark.parametrize(
    "word", ["pickle", "yaml", "joblib", r"\beval\(", r"\bexec\(", r"default_rng\(\)", r"\bTODO\b"]
)
def test_forbidden_words_do_not_occur(word: str) -> None:
    assert not [file.relative_to(SOURCE) for file in FILES if re.search(word, file.read_text())]


def test_files_are_short_and_have_docstrings() -> None:
    check_files(FILES)


def test_both_packages_have_the_same_version() -> None:
    assert locpmap_viewer.__version__ == locpmap.__version__
