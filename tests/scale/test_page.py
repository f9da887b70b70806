"""docs/scale.md contains the numbers of the benchmark records."""

import json

import pytest

pytest.importorskip("zarr")

from benchmarks.tiled import RECORD
from benchmarks.tiled_page import BEGIN, END, GPU, PAGE, overhead, rewritten


def test_page_matches_the_records():
    gpu = json.loads(GPU.read_text()) if GPU.exists() else None
    assert rewritten(PAGE.read_text(), json.loads(RECORD.read_text()), gpu) == PAGE.read_text()


def test_page_reports_differing_results():
    where = {"machine": {"cpu": "a core", "load": 0.5, "cores": 2}}
    record = {
        "same": {"size": 9, "sha256": {"tiles": "a", "whole": "b"}, "equal": False, **where},
        "kills": {"size": 9, "kills": 5, "equal": False, **where},
    }
    page = rewritten(f"before {BEGIN} old {END} after", record, None)
    assert "**not identical**" in page
    assert "**different from**" in page
    assert "old" not in page
    assert page.startswith("before")
    assert page.endswith("after")


def test_overhead_of_a_halo():
    assert overhead(100, 0) == 1
    assert overhead(100, 50) == 4
