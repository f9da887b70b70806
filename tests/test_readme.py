"""The README's Python blocks run as they stand, in order and in one session."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(BLOCKS) >= 4
    monkeypatch.chdir(tmp_path)  # some write files
    session: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS):
        needs = {"import torch": "torch", "locpmap.estimators": "sklearn"}
        if any(word in block and importlib.util.find_spec(package) is None for word, package in needs.items()):
            continue
        exec(compile(block, f"README.md, block {number}", "exec"), session)
    assert session["result"].probability.shape == (240, 320, 8)
    truth = session["labels"]
    alone = (session["images"] > 0.5) == truth  # the best that a pixel can say without its neighbours
    assert (session["denoised"].labels == truth).mean() > alone.mean()
