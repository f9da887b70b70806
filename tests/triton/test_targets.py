"""The GPU benchmark judges every task that it runs."""

from __future__ import annotations

import pytest
from benchmarks.gpu import BLOCKS_TASKS, FEW, OURS, TARGETS, judge

BLOCKS = "locpmap, rows and columns"


def test_rows_and_columns_are_judged_on_every_task_that_has_them() -> None:
    assert [task for task in TARGETS if BLOCKS in FEW.get(task, OURS)] == list(BLOCKS_TASKS)
    took = {"T2": 3.0, "T3": 6.0}
    results = {task: {"locpmap": {"milliseconds": 1.0}, BLOCKS: {"milliseconds": ms}} for task, ms in took.items()}
    found = {verdict.target.partition(":")[0]: verdict for verdict in judge(results, {}) if "columns" in verdict.target}
    assert {task: verdict.met for task, verdict in found.items()} == {"T2": True, "T3": False, "5,000 digits": None}
    assert found["T3"].measured == pytest.approx(6)
