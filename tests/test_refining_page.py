"""docs/refining.md holds what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locpmap.refining.refiner import Refiner

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/refining.json", ROOT / "docs/refining.md"


def test_the_page_is_made_from_the_record() -> None:
    page = pytest.importorskip("benchmarks.refining_page")
    if not PAGE.exists():
        pytest.skip("the docs are not here")
    assert page.page_of(json.loads(RECORD.read_text()), Refiner.load().weights) == PAGE.read_text()
