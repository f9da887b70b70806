"""Pages contain the numbers of the benchmark records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["deciding_page", "fields_page", "guarantees_page", "arena.page"])
def test_page_matches_the_record(name: str) -> None:
    page = pytest.importorskip(f"benchmarks.{name}")
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


def test_sentences_about_other_networks_follow_from_the_record() -> None:
    """Check the counts in README.md, docs/refining.md and docs/arena.md."""
    page = pytest.importorskip("benchmarks.arena.page")
    methods = pytest.importorskip("benchmarks.arena.methods")
    cells = json.loads(page.RECORD.read_text())["cells"]
    found = {measure: page.counts(cells, methods.DEFAULT, measure) for measure in page.JUDGED}
    assert len(cells) == 20
    assert found["IoU"] == (10, 10, 0)
    assert found["NLL"] == (11, 9, 0)
    assert found["boundary IoU"][2] == 0
    assert found["ECE"][2] == 1
    gain, error = cells["stanford-pyramid-1"]["methods"][methods.DEFAULT]["gains"]["ECE"]
    assert f"{gain:.4f} ± {error:.4f}" in page.PAGE.read_text()
    readme = (ROOT / "README.md").read_text()
    for begins, name in {
        "`lp.refine`, no labels": methods.DEFAULT,
        "`lp.Refiner.fit` on 20": methods.FITTED.format(20),
        "`lp.Refiner.fit` on up to 100": methods.FITTED.format("all"),
        "temperature scaling": methods.SCALED,
        "pydensecrf2, settings of its": methods.USUAL,
        "pydensecrf2, tuned on held-out images | 9": methods.TUNED,
        "guided filter": methods.GUIDED,
    }.items():
        line = next(line for line in readme.splitlines() if line.startswith(f"| {begins}"))
        shown = [" / ".join(map(str, page.counts(cells, name, m))) for m in ("IoU", "boundary IoU", "NLL", "ECE")]
        assert [cell.strip() for cell in line.split("|")[2:-1]] == shown
    readme = readme.replace("\n", " ")
    assert "improves the mean IoU of 10 and the likelihood of 11, and makes neither worse" in readme
