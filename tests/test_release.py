"""What a release must agree on: version, date and licence of all distributions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import locpmap as lp

ROOT = Path(__file__).parents[1]


def test_citation_and_changelog_name_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    released = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)
    assert f"\nversion: {lp.__version__}\n" in citation
    assert released is not None
    entries = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert entries[:2] == ["Unreleased", f"{lp.__version__} ({released[1]})"]


@pytest.mark.parametrize("folder", ["viewer", "paper"])
def test_every_distribution_has_the_licence(folder: str) -> None:
    if not (ROOT / folder).is_dir():
        pytest.skip(f"{folder} is not part of this distribution")
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
