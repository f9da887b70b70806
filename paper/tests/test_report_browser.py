"""The report in a browser: pictures load, no errors, no network requests, no clipped content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paper.tests.recorded_run import invented, invented_scenes, write_run, write_scenes

from locpmap_paper.report import write_report

pytestmark = pytest.mark.usefixtures("browser")  # first: without one, nothing else is set up

WIDTHS = [1280, 390]


@pytest.fixture(scope="module", params=["digits", "scenes"])
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    if request.param == "scenes":
        scenes = invented_scenes(levels=("boosted", "pretrained"))
        return write_report(write_scenes(tmp_path_factory.mktemp("run"), scenes, n_scenes=2))
    content = invented(models=("raw-pl", "deep-pl", "deep-consistent", "ce-fresh"), levels=("variance",))
    return write_report(write_run(tmp_path_factory.mktemp("run"), content))


@pytest.mark.parametrize("width", WIDTHS)
def test_report_opens_without_errors_or_requests(report: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_load_state("networkidle")
    widths = page.evaluate("[...document.images].map(image => image.complete ? image.naturalWidth : 0)")
    assert len(widths) == len(list((report.parent / "figures").iterdir()))
    assert min(widths) > 0
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert [url for url in requests if url.startswith("file:")] == [report.as_uri()]
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_only_tables_and_plots_scroll_sideways(report: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = """width => [...document.querySelectorAll('h1, h2, h3, p, li, figcaption, pre')]
        .filter(element => element.getBoundingClientRect().right > width).map(element => element.textContent)"""
    assert page.evaluate(outside, width) == []
    page.close()


def test_links_lead_to_sections(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    links = page.locator("nav a")
    n = page.locator("section").count()
    assert links.count() == n >= 6
    links.last.click()
    assert page.url.endswith(f"#part-{n}")
    page.close()
