"""Pages contain the numbers of the benchmark records."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("name", ["deciding", "fields", "guarantees"])
def test_page_matches_the_record(name: str) -> None:
    page = pytest.importorskip(f"benchmarks.{name}_page")
    if not page.PAGE.exists():
        pytest.skip("the docs are not here")
    prose = page.PAGE.read_text()
    assert page.filled(prose, page.tables_of(json.loads(page.RECORD.read_text()))) == prose
