"""The report: sentences agree with the numbers, and a damaged record is refused in one sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import matplotlib
import numpy as np
import pytest
from paper.tests.recorded_run import invented, write_run
from tests.command import Run

from locpmap.errors import InputError
from locpmap_paper.report import write_markdown, write_report
from locpmap_paper.report.ablation import Form, ablations, noise_in_words
from locpmap_paper.report.blocks import Table
from locpmap_paper.report.curves import overlap_by_samples
from locpmap_paper.report.fields import build
from locpmap_paper.report.findings import compared_with_paper, defeats, firsts, summary, unranked, verdicts
from locpmap_paper.report.measures import MEAN_IOU, NLL
from locpmap_paper.report.network_comparison import compare_with_network, joint_in_words
from locpmap_paper.report.pictures import read_pictures
from locpmap_paper.report.reading import read_record
from locpmap_paper.report.record import Record
from locpmap_paper.report.shown import MOST, curves
from locpmap_paper.report.statistics import estimate, paired
from locpmap_paper.report.strips import figure_one, main_figure
from locpmap_paper.report.tables import ablation_table, decoder_table, paper_table

Content = dict[str, Any]
JOINT = "deep features, joint consistent learning"
SMALL: dict[str, Any] = {"models": ("raw-pl", "raw-cl"), "levels": ("variance",), "paper": False}


def drawing_style() -> dict[str, Any]:
    """Return all settings of matplotlib except the backend, which other tests choose."""
    return {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")}


MATPLOTLIB = drawing_style()  # before the first figure


def record_of(content: Content) -> Record:
    return build(Record, json.loads(json.dumps(content)), "result.json")


@pytest.fixture(scope="module")
def content() -> Content:
    """Return synthetic numbers; tests that modify them create their own."""
    return invented()


@pytest.fixture(scope="module")
def record(content: Content) -> Record:
    return record_of(content)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with its report written."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "mnist", invented(levels=("variance",)))
    write_report(folder)
    return folder


def without_curves(**how: Any) -> Content:
    """Return synthetic numbers without curves, which are most of a record, for tests that modify rows."""
    return invented(**how) | {"curves": []}


def measured(content: Content, what: str, **cell: str) -> np.ndarray:
    """Return a measure of a cell, one value per seed, directly from the content."""
    rows = [row for row in content["rows"] if all(row[key] == value for key, value in cell.items())]
    return np.array([row[what] for row in sorted(rows, key=lambda row: row["seed"])])


def change_rows(content: Content, change: Callable[[Content], None], **cell: str) -> Content:
    for row in content["rows"]:
        if all(row[key] == value for key, value in cell.items()):
            change(row)
    return content


# statistics


def test_an_estimate_is_the_mean_and_its_standard_error() -> None:
    values = [0.81, 0.83, 0.88]
    found = estimate(values)
    assert found is not None
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert found.error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3), rel=1e-12)
    assert found.errors == pytest.approx(np.mean(values) / (np.std(values, ddof=1) / np.sqrt(3)), rel=1e-9)


def test_estimate_of_one_seed_and_of_none() -> None:
    single = estimate([0.5])
    assert single is not None
    assert (single.mean, single.error, single.errors) == (0.5, None, None)
    assert estimate([]) is None


def test_paired_differences_are_taken_over_common_seeds() -> None:
    found = paired({0: 0.9, 1: 0.8, 2: 0.7}, {1: 0.75, 2: 0.66, 3: 0.1})
    assert found is not None
    assert found.n == 2
    assert found.mean == pytest.approx(0.045, rel=1e-9)
    assert found.error == pytest.approx(0.005, rel=1e-9)  # of .05 and .04; common variation cancels


# findings


def test_firsts_report_the_best_decoder_its_rival_and_the_paired_gap(content: Content, record: Record) -> None:
    texts = dict(firsts(verdicts(record)))
    cell = {"level": "variance", "model": "raw-consistent"}
    ours = measured(content, "mean_iou", decoder="locpmap-conditional", **cell)
    rival = measured(content, "mean_iou", decoder="annealing", **cell)
    gap = ours - rival
    text = texts["raw features, consistent learning, variance level"]
    assert text.startswith("LocPMAP (conditional) is first with")
    assert f"{ours.mean():.4f}".removeprefix("0") in text
    assert f"Simulated annealing follows with {rival.mean():.4f}".replace("0.", ".") in text
    assert f"a gap of {gap.mean():.4f}".replace("0.", ".") in text
    assert f"{gap.mean() / (gap.std(ddof=1) / np.sqrt(3)):.0f} standard errors" in text


def test_every_cell_where_locpmap_loses_is_reported(content: Content, record: Record) -> None:
    found = verdicts(record)
    lost = {(v.model.name, v.level.name) for v in found if not v.is_first}
    forms = [d["name"] for d in content["decoders"] if d["family"] == "locpmap"]
    others = [d["name"] for d in content["decoders"] if d["family"] != "locpmap" and d["name"] != "perturb-and-map"]
    expected = set()
    for model in {row["model"] for row in content["rows"]} - {"ce-fresh"}:
        for level in ("variance", "amplitude"):
            means = {
                d: np.mean(
                    [v for v in measured(content, "mean_iou", level=level, model=model, decoder=d) if v is not None]
                )
                for d in (*forms, *others)
                if not (model == "raw-cl" and d == "graph-cut")  # refused
            }
            best, rival = max(means[d] for d in forms), max(means[d] for d in others if d in means)
            if round(rival, 4) > round(best, 4):  # identical when printed: a tie
                expected.add((model, level))
    assert ("raw-cl", "amplitude") in expected
    assert lost == expected
    words = dict(defeats(found, MEAN_IOU))
    assert len(words) == len(lost)
    assert "Gibbs with" in words["raw features, composite likelihood, amplitude level"]
    assert f"first in mean IoU in {len(found) - len(lost)} (1 of them tied" in summary(found)


def test_decoder_with_few_images_is_reported_but_not_ranked(record: Record) -> None:
    found = verdicts(record)
    assert all(v.rival is not None and v.rival.decoder.name != "perturb-and-map" for v in found)
    words = dict(unranked(found))
    assert (
        "Global Perturb-and-MAP has .8697 on 200 images, LocPMAP .8259 on 5,000"
        in words["raw features, pseudolikelihood, variance level"]
    )


def test_comparison_on_unequal_images_is_reported(record: Record) -> None:
    content = change_rows(without_curves(), lambda row: row.update(n_images=1000), decoder="annealing")
    found = verdicts(record_of(content))
    texts = dict(firsts(found))
    assert texts["raw features, pseudolikelihood, variance level"].endswith("; on the first 5,000 and 1,000 images).")
    assert "images" not in dict(firsts(verdicts(record)))["raw features, pseudolikelihood, variance level"]
    unequal = sum(v.rival is not None and v.rival.decoder.name == "annealing" for v in found)
    assert f"In {unequal} of the {len(found)} combinations, the two compared decoders" in summary(found)


def test_network_is_compared_on_the_same_images_only() -> None:
    content = change_rows(without_curves(), lambda row: row.update(n_images=1000), decoder="locpmap-conditional")
    assert compare_with_network(record_of(content)) == []
    content = change_rows(content, lambda row: row.update(n_images=1000), model="ce-fresh")
    assert {comparison.form.name for comparison in compare_with_network(record_of(content))} == {"locpmap-conditional"}


def tuned(content: Content, shift: float) -> Content:
    """Add a tuned form of LocPMAP whose mean IoU differs from the plain one by `shift`."""
    plain = next(d for d in content["decoders"] if d["name"] == "locpmap")
    content["decoders"].append(plain | {"name": "locpmap-tuned", "title": "LocPMAP, tuned", "paper": None})
    rows = [row for row in content["rows"] if row["decoder"] == "locpmap"]
    content["rows"] += [row | {"decoder": "locpmap-tuned", "mean_iou": row["mean_iou"] + shift} for row in rows]
    return content


def test_tuned_form_represents_locpmap() -> None:
    found = verdicts(record_of(tuned(without_curves(), -0.3)))
    for verdict in found:
        assert verdict.best.decoder.name == "locpmap-tuned"
        assert not verdict.is_first
    words = dict(defeats(found, MEAN_IOU))
    assert all(" LocPMAP (tuned) with" in text for text in words.values())


def test_values_that_print_identically_are_ties() -> None:
    content = invented(models=("raw-pl",), levels=("variance",), paper=False)
    change_rows(content, lambda row: row.update(mean_iou=0.5), model="raw-pl")
    change_rows(content, lambda row: row.update(mean_iou=0.500001), decoder="icm")
    (verdict,) = verdicts(record_of(content))
    assert verdict.is_first
    assert verdict.ahead == ()
    (text,) = dict(firsts([verdict])).values()
    assert "ICM tie at .5000" in text


def test_contradicting_paired_difference_is_reported() -> None:
    content = invented(models=("raw-pl",), levels=("variance",), paper=False)
    content["rows"] = [r for r in content["rows"] if r["decoder"] in ("locpmap", "icm")]
    for row in content["rows"]:
        ours = (0.95, 0.70, 0.70)[row["seed"]]
        row["mean_iou"] = ours if row["decoder"] == "locpmap" else (None, 0.75, 0.76)[row["seed"]]
    (text,) = dict(firsts(verdicts(record_of(content)))).values()
    assert "but in the opposite order on the seeds that both have" in text


def test_difference_on_which_all_seeds_agree_is_clear() -> None:
    assert estimate([0.1, 0.1, 0.1]).is_beyond(2)  # type: ignore[union-attr]
    assert not estimate([0.0, 0.0]).is_beyond(2)  # type: ignore[union-attr]
    assert not estimate([0.1]).is_beyond(2)  # type: ignore[union-attr]
    assert not estimate([0.1, 0.3, -0.1]).is_beyond(2)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["npy", "text", "bomb", "flipped"])
def test_damaged_pictures_are_refused(tmp_path: Path, record: Record, kind: str) -> None:
    path = tmp_path / "pictures.npz"
    if kind == "npy":
        np.save(path.with_suffix(".npy"), np.zeros(3))
        path.with_suffix(".npy").rename(path)
    elif kind == "text":
        np.savez(path, **{"variance/input": np.array(["a"]), "variance/truth": np.array(["b"])})  # type: ignore[arg-type]
    elif kind == "bomb":
        np.savez_compressed(path, **{"variance/input": np.zeros(2**28 // 8 + 1)})  # type: ignore[arg-type]
    else:
        np.savez_compressed(path, **{"variance/input": np.arange(9000.0).reshape(10, 30, 30)})  # type: ignore[arg-type]
        data = bytearray(path.read_bytes())
        data[200:240] = bytes(40)
        path.write_bytes(data)
    with pytest.raises(InputError, match=r"pictures\.npz"):
        read_pictures(tmp_path, record)


def test_smaller_nll_ranks_first(record: Record) -> None:
    for verdict in verdicts(record, NLL):
        assert verdict.lead is not None
        assert (verdict.lead.mean > 0) == verdict.is_first


def shift(what: str, by: float) -> Callable[[Content], None]:
    def change(row: Content) -> None:
        row[what] += by

    return change


@pytest.mark.parametrize(
    ("iou", "nll", "answer"),
    [
        (0.0, 0.0, "yes, in both. LocPMAP"),
        (-0.1, 0.0, "only in NLL, not in mean IoU"),
        (0.0, 0.1, "only in mean IoU, not in NLL"),
        (-0.1, 0.1, "no, in neither"),
    ],
)
def test_joint_model_against_the_network_in_words(iou: float, nll: float, answer: str) -> None:
    content = without_curves()
    for what, by in (("mean_iou", iou), ("nll", nll)):
        for form in ("locpmap", "locpmap-conditional", "locpmap-blocks", "locpmap-blocks-conditional"):
            change_rows(content, shift(what, by), model="deep-consistent", decoder=form)
    words = dict(joint_in_words(record_of(content)))
    assert set(words) == {f"{JOINT}, {level} level" for level in ("variance", "amplitude")}
    assert all(text.startswith(answer) for text in words.values())


def test_win_within_two_standard_errors_is_reported_as_unclear() -> None:
    content = without_curves()
    network = {"level": "variance", "model": "ce-fresh"}
    ours = dict(
        zip(
            (0, 1, 2),
            measured(content, "mean_iou", level="variance", model="deep-consistent", decoder="locpmap-conditional"),
            strict=True,
        )
    )

    def nearly(row: Content) -> None:
        row["mean_iou"] = ours[row["seed"]] + (0.01, -0.005, -0.008)[row["seed"]]

    words = dict(joint_in_words(record_of(change_rows(content, nearly, **network))))
    assert words[f"{JOINT}, variance level"].startswith(
        "yes, in both, but not in both by more than two standard errors"
    )


def test_network_comparison_is_the_paired_difference(content: Content, record: Record) -> None:
    (comparison,) = [
        d for d in compare_with_network(record) if (d.model.name, d.level.name) == ("deep-consistent", "variance")
    ]
    ours = measured(content, "nll", level="variance", model="deep-consistent", decoder=comparison.form.name)
    gap = ours - measured(content, "nll", level="variance", model="ce-fresh", decoder="argmax")
    assert comparison.nll is not None
    assert comparison.nll.mean == pytest.approx(gap.mean(), rel=1e-9)
    assert comparison.nll.error == pytest.approx(gap.std(ddof=1) / np.sqrt(3), rel=1e-9)


def test_one_seed_has_no_standard_errors_in_the_text() -> None:
    record = record_of(without_curves(seeds=(4,)))
    assert all("on one seed" in text for _, text in firsts(verdicts(record)) if "is first" in text)
    assert "standard error" not in summary(verdicts(record))
    assert all("on one seed only" in text for _, text in joint_in_words(record))


def test_comparison_with_the_paper_has_both_numbers(record: Record) -> None:
    words = dict(compared_with_paper(record))
    text = words["Raw features, variance level"]
    assert re.match(r"LocPMAP has \.545 in the paper, \.8202\s±\s\.\d+ here in the same form", text)
    assert not compared_with_paper(record_of(without_curves(paper=False)))


# tables


def row_of(table: Table | None, name: str) -> list[str]:
    assert table is not None
    (found,) = [row for row in table.rows if row[0].text.startswith(name)]
    return [f"*{cell.text}*" if cell.strong else cell.text for cell in found]


def test_paper_table_has_both_numbers(content: Content, record: Record) -> None:
    table = paper_table(record, record.levels[0], "raw")
    name, *paper, bg, fg, mean, images = row_of(table, "Gibbs")
    assert (name, paper, images) == ("Gibbs", [".840", ".233", ".537"], "5,000")
    ours = measured(content, "mean_iou", level="variance", model="raw-pl", decoder="gibbs")
    error = ours.std(ddof=1) / np.sqrt(3)
    assert re.split(r"\s±\s", mean) == [f"{value:.4f}".removeprefix("0") for value in (ours.mean(), error)]
    assert float(bg) == pytest.approx(ours.mean() + 0.1, abs=5e-5)
    assert float(fg) == pytest.approx(ours.mean() - 0.1, abs=5e-5)
    assert row_of(table, "Mean field")[1] == "*.861*"  # the paper's best of the column
    assert row_of(table, "LocPMAP, conditional")[1:4] == ["–", "–", "–"]
    assert row_of(table, "LocPMAP, conditional")[6].startswith("*.82")


def test_paper_table_without_the_paper(record: Record) -> None:
    table = paper_table(record_of(without_curves(paper=False)), record.levels[0], "raw")
    assert table is not None
    assert table.columns == ("decoder", "bg", "fg", "mean", "images")


def test_decoder_table_shows_refusals_and_numbers_of_images() -> None:
    content = without_curves()
    content["rows"] = [
        row
        for row in content["rows"]
        if not (row["decoder"] == "lbp" and row["model"] == "raw-cl" and row["seed"] == 2)
    ]
    record = record_of(content)
    table = decoder_table(record, record.levels[0], record.model("raw-cl"))
    best = row_of(table, "LocPMAP, conditional")
    assert row_of(table, "Graph cut") == ["Graph cut", "refused: two labels repel <somewhere> & no cut is exact"]
    assert row_of(table, "Global Perturb")[-1] == "200"
    assert best[-1] == "5,000"
    assert not any(cell.startswith("*") for cell in row_of(table, "Global Perturb"))
    assert row_of(table, "Loopy BP")[0] == "Loopy BP (2 of 3 seeds)"
    assert row_of(table, "ICM-iter")[10] == "*0.640*"  # 3.2 s for 5,000 images, the fastest
    assert row_of(table, "Global Perturb")[10] == "16.0"
    assert row_of(table, "Simulated")[6:10] == ["–"] * 4  # no probabilities
    assert all(cell.startswith("*") for cell in best[1:10])


def test_ablation_changes_one_setting_at_a_time(content: Content, record: Record) -> None:
    cells = next(a for a in ablations(record) if a.level.name == "variance")
    assert cells.reference == Form(True, "random", "votes", "sites", 50)

    def measured_form(**form: Any) -> np.ndarray:
        wanted = {"noise": True, "start": "random", "probability": "votes", "blocks": "sites", "n_samples": 50} | form
        found = [
            c for c in content["ablation"] if all(c[k] == v for k, v in wanted.items()) and c["level"] == "variance"
        ]
        return np.array([c["mean_iou"] for c in sorted(found, key=lambda c: c["seed"])])

    lost = measured_form(noise=False) - measured_form()
    row = row_of(ablation_table(cells), "without noise")
    size = f"{abs(lost.mean()):.4f}".removeprefix("0")
    assert row[2].startswith(f"−{size}")
    words = dict(cells.conclusions())
    assert f"mean IoU worsens by {size}" in words["Noise"]
    assert "negative log-likelihood worsens by" in words["Noise"]
    assert "mean IoU improves by" in words["Probability"]
    assert "negative log-likelihood improves by" in words["Probability"]
    assert words["Summary"].startswith("start has the largest effect on mean IoU, probability the smallest")
    assert "noise, random start, sites, conditional" in words["Summary"]
    assert "with 1 sample" in words["Samples"]
    assert "with 200 samples" in words["Samples"]


def test_curves_over_samples_need_several_numbers(content: Content) -> None:
    content = content | {"rows": [], "curves": []}
    cells = [cell for cell in content["ablation"] if cell["n_samples"] == 50]
    (one_number, *_) = ablations(record_of(content | {"ablation": cells}))
    assert overlap_by_samples(one_number) is None
    varied = [c for c in content["ablation"] if c["n_samples"] == 50 or (c["noise"] and c["start"] == "random")]
    (several, *_) = ablations(record_of(content | {"ablation": varied}))
    drawn = overlap_by_samples(several)
    assert drawn is not None
    assert drawn.startswith(b"\x89PNG")


# pages


class Page(HTMLParser):
    """The open and close tags, addresses and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data


def test_page_is_self_contained(run: Path) -> None:
    page = Page((run / "report.html").read_text())
    assert page.open == []
    assert "script" not in page.tags
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    links = {address[1:] for address in page.addresses if address.startswith("#")}
    assert links
    assert links <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("img") == len(list((run / "figures").iterdir()))
    for words in (
        "Findings",
        "locpmap reproduce mnist",
        "4" * 64,
        "max_sweeps 50",
        "σ = 0.680",
        "a processor <of 2 cores>",
    ):
        assert words in page.words
    assert "url(" not in (run / "report.html").read_text()


def test_figures_are_small_png_files(run: Path) -> None:
    figures = sorted((run / "figures").iterdir())
    assert [path.name for path in figures] == [
        "calibration-variance.png",
        "decoders-variance-deep-consistent.png",
        "decoders-variance-deep-pl.png",
        "figure-1-variance-deep-pl.png",
        "risk-coverage-variance.png",
        "samples-raw-pl-variance.png",
        "teaser.png",
    ]
    for path in figures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 300_000


def test_text_of_a_record_is_escaped(tmp_path: Path) -> None:
    content = invented(seeds=(0,), **SMALL) | {"ablation": []}
    hostile = '<script>alert("x")</script><img src="http://example.org/x.png">'
    content["title"] = hostile
    content["provenance"]["command"] = hostile
    for entry in (*content["models"], *content["decoders"], *content["levels"]):
        entry["says"] = hostile
    content["models"][0]["title"] = hostile
    page = Page(write_report(write_run(tmp_path, content)).read_text())
    assert "script" not in page.tags
    assert hostile in page.words
    assert all(address.startswith(("data:", "#")) for address in page.addresses)


def test_report_is_reproducible_and_restores_matplotlib_settings(run: Path, tmp_path: Path) -> None:
    again = write_run(tmp_path / "mnist", invented(levels=("variance",)))
    page = write_report(again)
    assert drawing_style() == MATPLOTLIB
    assert page.read_bytes() == (run / "report.html").read_bytes()
    for figure in (again / "figures").iterdir():
        assert figure.read_bytes() == (run / "figures" / figure.name).read_bytes()


def test_markdown_links_its_figures_and_gives_its_origin(tmp_path: Path) -> None:
    quick: Content = {"ablation": [], "curves": []}
    runs = [
        write_run(tmp_path / f"run {n}", invented(seeds=seeds, **SMALL) | quick)
        for n, seeds in enumerate([(0, 1), (7,)])
    ]
    text = write_markdown(runs, tmp_path / "results.md").read_text()
    figures = re.findall(r"\]\((.*?)\)\n", text)
    assert len(figures) == len(set(figures)) == len(list((tmp_path / "figures").iterdir())) == 6
    assert all((tmp_path / unquote(name)).is_file() for name in figures)
    assert not any(" " in name for name in figures)
    assert "seeds 0, 1, locpmap 0.4.0" in text
    assert "seeds 7, locpmap 0.4.0" in text
    assert text.count("locpmap reproduce mnist --seeds 0,1,2") >= 2
    before = 0
    for line in text.splitlines():  # all rows of a table have the same number of cells
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert not (cells and before) or cells == before, line
        before = cells
    assert write_markdown(runs, tmp_path / "again.md").read_text() == text


def test_sparse_record_gives_a_report(tmp_path: Path) -> None:
    content = invented(seeds=(0,), models=("raw-pl",), levels=("variance",), paper=False)
    content |= {"ablation": [], "curves": [], "fits": [], "fast": True}
    content["rows"] = [row | {"nll": None} for row in content["rows"] if row["decoder"] in ("icm", "locpmap", "argmax")]
    content["protocol"] |= {"n_fit": None, "n_held_out": None}
    words = Page(write_report(write_run(tmp_path, content)).read_text()).words
    for sentence in (
        "This is a smoke run",
        "There is only one seed, so the numbers have no standard errors",
        "has no table for these data",
        "The deep model (deep-pl) was not run",
        "This run has no comparison on the same images",
        "recorded no curves",
        "recorded no ablation",
    ):
        assert sentence in words


def test_record_without_rows(tmp_path: Path) -> None:
    content = invented(**SMALL) | {"ablation": [], "curves": [], "rows": []}
    words = Page(write_report(write_run(tmp_path, content)).read_text()).words
    assert "LocPMAP was not run" in words
    assert "This run has no example images of LocPMAP" in words


def test_nan_in_a_record_is_read_as_none(tmp_path: Path) -> None:
    content = change_rows(invented(**SMALL), lambda row: row.update(nll=float("nan")), decoder="gibbs")
    record = read_record(write_run(tmp_path, content))
    assert record.estimate("variance", "raw-pl", "gibbs", NLL.value) is None


def test_figures_stay_inside_the_folder(tmp_path: Path) -> None:
    content = json.loads(json.dumps(invented(seeds=(0,), **SMALL)).replace('"variance"', '"../../up"'))
    folder = write_run(tmp_path / "a" / "b", content)
    write_report(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}
    assert (folder / "figures" / "calibration-up.png").is_file()


def test_main_figure_shows_the_network_the_paper_and_the_best(run: Path) -> None:
    record = read_record(run)
    pictures = dict(read_pictures(run, record))
    level = record.levels[0]
    made = main_figure(record, pictures, level)
    assert made is not None
    assert [(pair.role, pair.name) for pair in made.shown] == [
        ("Network alone", "ce-fresh/argmax"),
        ("The paper's setting", "deep-pl/locpmap"),
        ("LocPMAP at its best", "deep-consistent/locpmap-conditional"),
    ]
    raw_only = {name: picture for name, picture in pictures.items() if "deep" not in name}
    made = figure_one(record, raw_only, level)
    assert made is not None
    assert [pair.name for pair in made.shown] == ["ce-fresh/argmax", "raw-pl/icm", "raw-pl/locpmap"]
    words = Page((run / "report.html").read_text()).words
    assert f"LocPMAP at its best: LocPMAP, conditional on “{JOINT}”" in words
    assert "The paper's setting: LocPMAP on “deep features, pseudolikelihood”" in words


def test_page_explains_every_model_once(run: Path, content: Content) -> None:
    words = Page((run / "report.html").read_text()).words
    for model in content["models"]:
        assert words.count(model["says"]) == 1
        assert f"({model['name']})" in words


def test_curves_show_at_most_six_pairs(content: Content, record: Record) -> None:
    every = {f"{curve['model']}/{curve['decoder']}" for curve in content["curves"]}
    found = curves(record, record.levels[0], every)
    assert len(found) <= MOST
    assert [pair.name for pair in found] == [
        "ce-fresh/argmax",
        "deep-consistent/locpmap-conditional",
        "deep-pl/locpmap",
        "deep-consistent/icm-iter",
        "deep-pl/icm-iter",
    ]
    assert [pair.name for pair in curves(record, record.levels[0], {"raw-pl/locpmap"})] == ["raw-pl/locpmap"]


def test_effect_of_noise_is_counted_by_start(content: Content) -> None:
    settings = [cell for cell in content["ablation"] if cell["level"] == "variance"]
    settings = [c for c in settings if c["noise"] or c["start"] != "perturbed"]  # equal to the start at the unaries
    content = content | {"rows": [], "curves": []}
    text = noise_in_words(ablations(record_of(content | {"ablation": settings})))
    assert text is not None
    assert "8 of 8 settings with a fixed or perturbed start, and in 4 of 4 with a random start" in text

    def mean(what: str, noise: bool) -> str:
        same = {"noise": noise, "start": "unary", "probability": "votes", "blocks": "sites", "n_samples": 50}
        found = [c[what] for c in settings if all(c[name] == value for name, value in same.items())]
        return f"{np.mean(found):.4f}".removeprefix("0")

    assert f"raises mean IoU from {mean('mean_iou', False)} to {mean('mean_iou', True)} (raw features" in text
    assert f"lowers the negative log-likelihood of the votes from {mean('nll', False)} to {mean('nll', True)}" in text
    harmful = [c | {"mean_iou": c["mean_iou"] - c["noise"] * (c["start"] == "random")} for c in settings]
    text = noise_in_words(ablations(record_of(content | {"ablation": harmful})))
    assert text is not None
    assert "8 of 8 settings with a fixed or perturbed start, and in 0 of 4 with a random start" in text
    plain = [cell for cell in settings if cell["noise"]]
    assert noise_in_words(ablations(record_of(content | {"ablation": plain}))) is None


# bad input


def damaged() -> Iterator[Any]:
    """Yield ways to damage a folder: a name, a function, and words of the error."""

    def without(*names: str) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            for name in names:
                (folder / name).unlink()

        return damage

    def bytes_in(name: str, data: bytes) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            (folder / name).write_bytes(data)

        return damage

    def edited(edit: Callable[[Content], Any]) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            edit(content)
            (folder / "result.json").write_text(json.dumps(content))

        return damage

    def arrays(**changes: np.ndarray | None) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            with np.load(folder / "pictures.npz") as file:
                kept = {name: file[name] for name in file.files} | {k.replace("__", "/"): v for k, v in changes.items()}
            np.savez(folder / "pictures.npz", **{k: v for k, v in kept.items() if v is not None})

        return damage

    yield "no result", without("result.json"), "holds no result.json, expected a folder that"
    yield "no pictures", without("pictures.npz"), "does not exist"
    yield "empty", bytes_in("result.json", b""), "is empty"
    yield "damaged", bytes_in("result.json", b'{"schema": 1,'), "is damaged"
    yield "not text", bytes_in("result.json", b"\xff\xfe\x00"), "is damaged"
    yield "deep", bytes_in("result.json", b"[" * 100_000), "is damaged"
    yield "a list", bytes_in("result.json", b"[1]"), "has schema None, expected 1"
    yield "schema", edited(lambda c: c.update(schema=2)), "has schema 2, expected 1"
    yield "no rows", edited(lambda c: c.pop("rows")), "has no 'rows', expected a list"
    yield (
        "a word",
        edited(lambda c: c["rows"][3].update(mean_iou="high")),
        "rows[3].mean_iou is 'high', expected a number",
    )
    yield "no seed", edited(lambda c: c["rows"][3].pop("seed")), "rows[3] has no 'seed'"
    yield "a row", edited(lambda c: c["rows"].append(7)), "is 7, expected an object"
    yield (
        "a model",
        edited(lambda c: c["rows"][0].update(model="x")),
        "rows[0].model is 'x', expected one of the models",
    )
    yield "twice", edited(lambda c: c["rows"].append(c["rows"][0])), "holds two rows for variance, raw-pl, argmax, 0"
    yield (
        "no levels",
        edited(lambda c: c.update(levels=[], rows=[], fits=[], curves=[], ablation=[])),
        "lists no levels",
    )
    yield "no zip", bytes_in("pictures.npz", b"PK\x03\x04 nothing"), "pictures.npz is damaged"
    yield "objects", arrays(variance__input=np.array([[[None]]], dtype=object)), "pictures.npz is damaged"
    yield "no truth", arrays(variance__truth=None), "holds no variance/input and variance/truth"
    yield "flat", arrays(variance__input=np.zeros((8, 28))), "expected (n, H, W)"
    yield "sizes", arrays(variance__truth=np.zeros((8, 28, 27))), "variance/truth of shape (8, 28, 27)"


CASES = [pytest.param(*case[1:], id=case[0]) for case in damaged()]


@pytest.mark.parametrize(("damage", "words"), CASES)
def test_damaged_folder_is_refused_in_one_sentence(
    damage: Callable[[Path, Content], None], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = invented(seeds=(0,), models=("raw-pl",), levels=("variance",))
    folder = write_run(tmp_path / "run", content)
    (folder / "report.html").write_text("an earlier report")
    damage(folder, content)
    Run(capsys, "report", folder).check_refusal(words)
    assert (folder / "report.html").read_text() == "an earlier report"
    assert not (folder / "figures").exists()


def test_invalid_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(capsys, "report", tmp_path / "nowhere").check_refusal("nowhere does not exist, expected the folder of a run")
    (tmp_path / "file").touch()
    Run(capsys, "report", tmp_path / "file").check_refusal("is a file, expected the folder of a run")
    same = [write_run(tmp_path / name / "run", invented(seeds=(0,), **SMALL)) for name in "ab"]
    Run(capsys, "report", *same, "--markdown", tmp_path / "x.md").check_refusal("expected different names")
    Run(capsys, "report", same[0], "--markdown", tmp_path / "no" / "x.md").check_refusal("there is no folder")
    (same[0] / "figures").touch()
    with pytest.raises(InputError, match=r"figures cannot be created: File exists"):
        write_report(same[0])


def test_command_writes_a_report_or_a_markdown_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", invented(seeds=(0,), **SMALL) | {"ablation": [], "curves": []})
    run = Run(capsys, "report", folder)
    assert (run.status, run.err) == (0, "")
    assert run.out == f"written {folder / 'report.html'}\n"
    run = Run(capsys, "report", folder, "--markdown", tmp_path / "results.md")
    assert (run.status, run.err) == (0, "")
    assert (tmp_path / "results.md").read_text().startswith("# Results\n")


def test_importing_reports_does_not_import_matplotlib() -> None:
    code = "import locpmap_paper.report, sys; print('matplotlib' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert done.stdout == "False\n"
