"""Rules of the paper's package: public imports only, light imports for help, and no unpickling."""

from __future__ import annotations

import ast
import importlib
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
import locpmap_paper

SOURCE = Path(locpmap_paper.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
HEAVY = (
    *("torch", "numba", "matplotlib", "scipy", "pandas", "PIL", "mlxtend", "safetensors", "sklearn", "skimage"),
    *("pooch", "requests", "urllib3", "dask", "distributed", "h5py"),
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_only_public_names_of_the_library_are_imported(file: Path) -> None:
    assert not [found for found in library_imports(file.read_text()) if not is_public(*found)]


def test_library_imports_finds_all_forms_of_import() -> None:
    code = (
        "import locpmap.crf\nfrom locpmap.learning.fit import fit\nfrom locpmap import CRF\nfrom locpmap.crf import Any"
    )
    assert [is_public(*found) for found in library_imports(code)] == [False, False, True, False]


def test_every_public_name_exists() -> None:
    for module in {module for file in FILES for module, _ in library_imports(file.read_text())}:
        package = importlib.import_module(module)
        assert not [name for name in package.__all__ if not hasattr(package, name)], module


# commands


def test_commands_are_installed() -> None:
    found = {point.name for point in entry_points(group="locpmap.commands")}
    assert {"data", "report", "reproduce"} <= found, "pip install -e paper"


def test_help_lists_the_commands_without_heavy_imports() -> None:
    """Run all commands in one process, whose imports are checked at the end."""
    code = f"""
import sys
from locpmap.cli import main
for words in ([], ["data"], ["data", "fetch"], ["reproduce"], ["report"]):
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert not end.code, words
    if not words:
        assert not [name for name in sys.modules if name.startswith("locpmap_paper")]
print("LOADED", *[m for m in {HEAVY!r} if m in sys.modules])"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"
    text = " ".join(done.stdout.split())
    for line in ("reproduce Run one of", "report Write", "data List", "Usage: locpmap data fetch"):
        assert line in text


@pytest.mark.parametrize("words", [["reproduce", "digits"], ["report", "--help"], ["data", "list"]], ids=" ".join)
def test_commands_without_this_package_name_the_package_to_install(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    Run(capsys, *words).check_refusal(
        f"locpmap {words[0]} needs locpmap-paper", "pip install '.[all]' ./paper in a clone"
    )
    assert words[0] in Run(capsys, "--help").out


# rules


@pytest.mark.parametrize("word", ["pickle", r"torch\.load", "allow_pickle", "yaml", "joblib", r"\beval\(", r"\bexec\("])
def test_no_unsafe_deserialisation(word: str) -> None:
    found = [file.relative_to(SOURCE) for file in FILES if re.search(word, file.read_text())]
    # This file converts published weights in torch's format, whose sha256 is known.
    assert found == ([Path("networks/published.py")] if "load" in word else [])


def test_torch_load_uses_weights_only() -> None:
    code = (SOURCE / "networks" / "published.py").read_text()
    calls = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and "torch.load" in ast.unparse(node.func)
    ]
    assert calls
    for call in calls:
        assert "weights_only=True" in ast.unparse(call)


@pytest.mark.parametrize("word", [r"np\.random\.seed", r"default_rng\(\)", r"\bTODO\b", r"\bFIXME\b"])
def test_forbidden_words_do_not_occur(word: str) -> None:
    assert not [file.relative_to(SOURCE) for file in FILES if re.search(word, file.read_text())]


def test_files_are_short_and_have_docstrings() -> None:
    check_files(FILES)


def test_both_packages_have_the_same_version() -> None:
    assert locpmap_paper.__version__ == locpmap.__version__
