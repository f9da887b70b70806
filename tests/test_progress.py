"""Progress bars of calls, with ``progress=True``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress

import locpmap as lp
from locpmap.errors import InputTypeError
from locpmap.progress import reporting
from locpmap.scale import decide_tiled

SCORES = np.random.default_rng(0).normal(size=(12, 16, 3))
POT = lp.Potentials.grid(SCORES, 0.5)


def write(folder: Path, progress: Any) -> None:
    lp.infer_tiled(SCORES, 0.5, tile=8, max_sweeps=4).write(folder / "out.zarr", progress=progress)


def decide(folder: Path, progress: Any) -> None:
    write(folder, None)
    decide_tiled(folder / "out.zarr", progress=progress)


CALLS: dict[str, Callable[[Path, Any], Any]] = {
    "locpmap": lambda _, progress: lp.infer(POT, progress=progress),
    "area": lambda _, progress: lp.measure(POT, "area", progress=progress),
    "refine": lambda _, progress: lp.refine(None, SCORES, layout="hwk", progress=progress),
    "tiles": write,
    "deciding": decide,
}


@pytest.mark.parametrize("name", CALLS)
def test_true_shows_a_bar(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[str, float]]()

    class Bar(Progress):
        def update(self, task_id: Any, *_: Any, **fields: Any) -> None:
            seen.append((self.tasks[0].description, fields["completed"] / fields["total"]))

    monkeypatch.setattr("rich.progress.Progress", Bar)
    CALLS[name](tmp_path, True)
    assert seen[-1:] == [("locpmap" if name == "refine" else name, 1)]


@pytest.mark.parametrize("name", CALLS)
def test_other_values_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputTypeError, match="progress is 3, expected True, False or a function of"):
        CALLS[name](tmp_path, 3)


def test_bars_are_shown_in_terminals_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
            monkeypatch.setenv("TERM", "xterm")
        with reporting(True, "fit") as report:
            assert report is not None
            report(1, 2, 0.123456)
            report(2, 2, 0.0)
        out, err = capsys.readouterr()
        assert out == ""
        assert all(text in err for text in ("fit", " 0 ")) if terminal else err == ""
