"""The Python blocks of the README run unchanged, in order and in one session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_every_code_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(BLOCKS) >= 3
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    exec(compile(BLOCKS[0], "README.md, block 0", "exec"), session)
    refined, truth = session["result"].labels, session["truth"]
    coarse = session["logits"].argmax(axis=-1).repeat(8, axis=0).repeat(8, axis=1)
    assert (refined != truth).mean() < (coarse != truth).mean()
    for number, block in enumerate(BLOCKS[1:], 1):
        exec(compile(block, f"README.md, block {number}", "exec"), session)
    assert (session["low"] <= session["area"].mean).all()
    truth = session["labels"]
    alone = (session["images"] > 0.5) == truth  # the best classification of pixels without neighbours
    assert (session["denoised"].labels == truth).mean() > alone.mean()
