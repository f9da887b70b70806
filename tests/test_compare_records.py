"""Comparing benchmark records: same machine by times, another machine by ratios alone."""

from __future__ import annotations

from typing import Any

from benchmarks.compare import changes


def record(cpu: str, seconds: float, ratio: float) -> dict[str, Any]:
    row = {"seconds": seconds, "runs": [seconds], "peak_bytes": 5, "ratios": {"peer": ratio}}
    return {"machine": {"cpu": cpu, "cores": 2}, "results": {"T2": {"locpmap": row}}}


def test_times_count_on_the_same_machine() -> None:
    found = changes(record("A", 1.0, 0.5), record("A", 2.0, 0.4))
    assert found == {
        "results / T2 / locpmap / seconds": (1.0, 2.0),
        "results / T2 / locpmap / ratios / peer": (0.5, 0.4),
    }


def test_only_ratios_count_on_another_machine() -> None:
    assert changes(record("A", 1.0, 0.5), record("B", 2.0, 0.4)) == {
        "results / T2 / locpmap / ratios / peer": (0.5, 0.4)
    }
