"""docs/gpu.md agrees with the records of the GPU benchmark and of the GPU tests."""

import json

import pytest
from benchmarks.gpu_page import BEGIN, END, RESULTS, ROOT, rewritten

RECORD, TESTS = (RESULTS / f"gpu{part}-nvidia-h200.json" for part in ("", "-tests"))
PAGE = ROOT / "docs/gpu.md"


def test_the_page_matches_the_records():
    if not RECORD.exists():
        pytest.skip("no run on a GPU is recorded")
    tests = json.loads(TESTS.read_text()) if TESTS.exists() else None
    assert rewritten(PAGE.read_text(), json.loads(RECORD.read_text()), tests) == PAGE.read_text()


def test_a_missed_target_is_reported_as_missed():
    row = {"milliseconds": 1.5, "wall": 1.6, "accuracy": 0.95}
    floor = {"memory": 0.1, "philox": 0.2, "labels": 0.1, "milliseconds": 0.2}
    record = {
        "git": "abc",
        "date": "2000-01-01",
        "machine": {"gpu": "a card"},
        "versions": {"torch": "2"},
        "peers": ["other"],
        "ceilings": {"copy_gb_per_s": 4000.0, "cache_gb_per_s": 9000.0, "philox_per_s": 3e11},
        "results": {
            "T2": {
                "locpmap": row | {"floor": floor, "in_a_row": 1.2, "kernels": {"climb": 1.0}},
                "other": {"refused": "absent"},
            }
        },
        "learning": {},
        "targets": [{"target": "T2", "limit": 0.5, "measured": 1.5, "met": False}],
    }
    page = rewritten(f"{BEGIN}{END}", record, None)
    assert "| T2 | 0.5 | 1.5 | **missed** |" in page
    assert "| other | – | – |" in page
    assert "| T2 | 0.1 | 0.2 | 0.1 | 1 | 1.2 | 1.5 | 1.6 | 5.0 |" in page
    assert page == rewritten(page, record, None)
