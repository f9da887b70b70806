"""docs/refining.md contains the numbers of the benchmark record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locpmap.refining.refiner import Refiner

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/refining.json", ROOT / "docs/refining.md"


def test_page_matches_the_record() -> None:
    page = pytest.importorskip("benchmarks.refining_page")
    if not PAGE.exists():
        pytest.skip("the docs are not here")
    record, prose = json.loads(RECORD.read_text()), PAGE.read_text()
    assert page.filled(prose, page.tables_of(record, Refiner.load().weights)) == prose
    assert f"pydensecrf2 with {record['speed']['iterations']} iterations" in prose.replace("\n", " ")


def test_table_without_a_placeholder_is_refused() -> None:
    page = pytest.importorskip("benchmarks.refining_page")
    assert page.filled("a\n<!-- table: x -->\nold\n<!-- end -->\nb", {"x": "new"}).splitlines()[3] == "new"
    with pytest.raises(ValueError, match="places for"):
        page.filled("a", {"x": "new"})
