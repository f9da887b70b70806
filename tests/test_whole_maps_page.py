"""docs/whole-maps.md contains the numbers of the benchmark record."""

from __future__ import annotations

import json

import pytest


def test_page_matches_the_record() -> None:
    page = pytest.importorskip("benchmarks.fields_page")
    if not page.PAGE.exists():
        pytest.skip("the docs are not here")
    prose = page.PAGE.read_text()
    assert page.filled(prose, page.tables_of(json.loads(page.RECORD.read_text()))) == prose
