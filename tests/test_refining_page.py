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
    for sentence in (
        f"{record['scenes']['test']} test scenes",
        f"{record['scenes']['held_out']} held-out scenes",
        f"pydensecrf2 with {record['speed']['iterations']} iterations",
    ):
        assert sentence in prose.replace("\n", " ")
    ahead = [
        t["rows"]["pydensecrf2, tuned"]["IoU"]["value"] > t["rows"]["lp.refine"]["IoU"]["value"]
        for t in record["strides"].values()
    ]
    assert ahead == [True] * 3  # as stated on the page


def test_table_without_a_placeholder_is_refused() -> None:
    page = pytest.importorskip("benchmarks.refining_page")
    assert page.filled("a\n<!-- table: x -->\nold\n<!-- end -->\nb", {"x": "new"}).splitlines()[3] == "new"
    with pytest.raises(ValueError, match="places for"):
        page.filled("a", {"x": "new"})
