"""docs/scale.md says what the records of the benchmark say."""

import json

import pytest

pytest.importorskip("zarr")

from benchmarks.tiled import RECORD
from benchmarks.tiled_page import BEGIN, END, GPU, PAGE, overhead, rewritten


def test_the_page_is_made_from_the_records():
    gpu = json.loads(GPU.read_text()) if GPU.exists() else None
    assert rewritten(PAGE.read_text(), json.loads(RECORD.read_text()), gpu) == PAGE.read_text()


def test_what_differs_is_said():
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


def test_a_halo_costs_what_it_covers():
    assert overhead(100, 0) == 1
    assert overhead(100, 50) == 4
