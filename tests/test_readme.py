"""The README is short, its Python blocks run unchanged, in order and in one session, and its links resolve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, *BLOCKS = re.findall(r"^```py(?:thon)?\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_every_code_block_runs_and_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(BLOCKS) >= 3
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README.md, block {number}", "exec"), session)
        assert capsys.readouterr().out.strip(), f"block {number} prints no result"
    before = session["low"], session["high"]
    exec(compile(FIRST, "README.md, first block", "exec"), session)  # with the inputs of the others
    np.testing.assert_array_equal((session["low"], session["high"]), before)
    truth = session["truth"]
    resized = ndimage.zoom(session["logits"], (8, 8, 1), order=1, mode="nearest", grid_mode=True)  # bilinearly
    ours, theirs = (session["result"].labels == truth).mean(), (resized.argmax(axis=-1) == truth).mean()
    assert f"# {ours:.4f}; {theirs:.4f} with logits resized bilinearly" in README
    areas = np.bincount(truth.ravel(), minlength=3)
    assert f"the true areas are {areas[0]}, {areas[1]} and {areas[2]}" in README
    assert (session["low"] <= areas).all()
    assert (areas <= session["high"]).all()


def test_links_resolve() -> None:
    targets = [target for target in LINK.findall(README) if "://" not in target]
    assert len(targets) > 20
    for target in targets:
        path, _, anchor = target.partition("#")
        if path.startswith("paper/") and not (ROOT / "paper").is_dir():
            continue  # a source distribution of the library
        assert (ROOT / path).is_file(), target
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text("utf-8"), flags=re.MULTILINE) if anchor else []
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, target
