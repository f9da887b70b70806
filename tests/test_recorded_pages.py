"""Pages contain the numbers of the benchmark records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["deciding", "fields", "guarantees"])
def test_page_matches_the_record(name: str) -> None:
    page = pytest.importorskip(f"benchmarks.{name}_page")
    if not page.PAGE.exists():
        pytest.skip("the docs are not here")
    prose = page.PAGE.read_text()
    assert page.filled(prose, page.tables_of(json.loads(page.RECORD.read_text()))) == prose


def test_readme_has_the_numbers_of_the_records() -> None:
    deciding, guarantees = (pytest.importorskip(f"benchmarks.{name}_page") for name in ("deciding", "guarantees"))
    readme, decided = (ROOT / "README.md").read_text(), json.loads(deciding.RECORD.read_text())
    for name in ("stanford", "msrc", "nuclei", "silhouettes"):
        for row in (
            "network: RankSEG, IoU",
            "pydensecrf2, tuned",
            "network: IoU per image",
            "lp.refine: IoU per image",
        ):
            gain, error = decided[name]["rows"][row]["gains"]["IoU per image"]
            shown = f"{gain:+.3f} ± {error:.3f}".replace("0.", ".").replace("-", "−")
            assert shown in readme, f"{name}, {row}: {shown}"
        rows = json.loads(guarantees.RECORD.read_text())[name]["rows"]
        assert f"{100 * rows['area']['coverage']:.0f} %" in readme.split("| guaranteed intervals |")[1].splitlines()[0]
