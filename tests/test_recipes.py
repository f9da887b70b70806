"""Every recipe of docs/recipes.md runs by itself, after the block that defines the inputs."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from locpmap.cli import app

PAGE = Path(__file__).parents[1] / "docs/recipes.md"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PACKAGES = ("torch", "sklearn", "transformers", "monai", "rasterio", "nibabel", "xarray", "pandas")


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the first block of the page in an empty folder, and return its variables."""
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {"__name__": "page"}
    exec(compile(BLOCK.findall(PAGE.read_text("utf-8"))[0], "recipes.md, inputs", "exec"), session)
    return session


def test_there_are_ten_recipes() -> None:
    assert len(SECTIONS) == 10


@pytest.mark.filterwarnings("default")  # warnings inside other packages are theirs
@pytest.mark.parametrize("title", SECTIONS)
def test_recipe_runs_and_prints(title: str, inputs: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = BLOCK.findall(SECTIONS[title])
    for name in re.findall(r"^(?:import|from) (\w+)", block, flags=re.MULTILINE):
        if name in PACKAGES:
            pytest.importorskip(name, reason=f"{name} is not installed")
    if title == "scikit-image":
        pytest.importorskip("skimage", reason="scikit-image is not installed")
    capsys.readouterr()
    exec(compile(block.replace('"cuda"', '"cpu"'), f"recipes.md, {title}", "exec"), inputs)
    assert capsys.readouterr().out.strip()
    if title in ("PyTorch training loop", "rasterio", "xarray", "scikit-image", "Folder on the command line", "GPU"):
        labels = np.asarray(inputs["result"].labels).reshape(inputs["truth"].shape)
        assert (labels == inputs["truth"]).mean() > 0.95
    elif title.startswith("scikit-learn"):
        assert inputs["search"].best_score_ > 0.95


def test_the_command_writes_the_labels_of_the_loop(inputs: dict[str, Any], tmp_path: Path) -> None:
    section = SECTIONS["Folder on the command line"]
    (block,) = BLOCK.findall(section)
    exec(compile(block, "recipes.md", "exec"), inputs)
    (command,) = re.findall(r"^locpmap (.+)$", section, flags=re.MULTILINE)
    answer = CliRunner().invoke(app, shlex.split(command))
    assert answer.exit_code == 0, answer.output
    image = import_module("PIL.Image").open(tmp_path / "out/house.labels.png")
    assert (np.array(image) == np.load(tmp_path / "house.labels.npy")).all()
