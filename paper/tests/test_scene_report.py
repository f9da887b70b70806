"""The report of scenes: numbers agree with the record, losses are reported, and no photograph is published."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.tests.recorded_run import (
    SCENE_LABELS,
    SCENE_PAPER,
    invented,
    invented_scenes,
    scene_pictures,
    write_run,
    write_scenes,
)
from paper.tests.test_report import Page, change_rows, measured, record_of, row_of
from tests.command import Run

from locpmap_paper.report import write_markdown, write_report
from locpmap_paper.report.curves import drawn_pairs
from locpmap_paper.report.measures import SCENE_MEASURES
from locpmap_paper.report.record import Record
from locpmap_paper.report.scene_comparison import compare_with_unaries, in_words
from locpmap_paper.report.scene_errors import error_curves, ranked
from locpmap_paper.report.scene_figures import Gallery
from locpmap_paper.report.scene_images import COLOURS, NO_LABEL, WRONG, coloured, errors, marked, windows
from locpmap_paper.report.scene_tables import comparison_table, label_table, paper_table
from locpmap_paper.report.settings import facts_table
from locpmap_paper.report.tables import decoder_table

Content = dict[str, Any]
PL, CONSISTENT = "pseudolikelihood on learned boundaries", "consistent learning on learned boundaries"


@pytest.fixture(scope="module")
def content() -> Content:
    """Return synthetic numbers; tests that modify them create their own."""
    return invented_scenes()


@pytest.fixture(scope="module")
def record(content: Content) -> Record:
    return record_of(content)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with its report written."""
    folder = write_scenes(tmp_path_factory.mktemp("runs") / "stanford", invented_scenes())
    write_report(folder)
    return folder


def quick(**changes: Any) -> Content:
    """Return a record of one seed and one kind of unaries, without curves."""
    return invented_scenes(seeds=(0,), levels=("boosted",)) | {"curves": []} | changes


def printed(value: float) -> str:
    return f"{value:.4f}".replace("0.", ".", 1).replace("-", "−")


def plus_minus(values: np.ndarray) -> list[str]:
    return [printed(values.mean()), printed(values.std(ddof=1) / np.sqrt(len(values)))]


# tables


def test_paper_table_has_a_row_of_ours_and_one_of_the_paper(content: Content, record: Record) -> None:
    boosted, deep, _ = (paper_table(record, level) for level in record.levels)
    assert boosted is not None
    assert boosted.columns == ("decoder", "source", *SCENE_LABELS, "mean IoU", "images")
    lines = {(row[0].text, row[1].text): row for row in boosted.rows}
    ours = lines["LocPMAP, conditional", "ours"]
    labels = measured(content, "iou", level="boosted", model="pl-edges", decoder="locpmap-conditional")  # (seed, label)
    mean = measured(content, "mean_iou", level="boosted", model="pl-edges", decoder="locpmap-conditional")
    assert [cell.text for cell in ours[2:10]] == [printed(value) for value in labels.mean(axis=0)]
    assert re.split(r"\s±\s", ours[10].text) == plus_minus(mean)
    assert [cell.strong for cell in ours[2:11]] == [True] * 9  # the best among ranked decoders
    assert ours[11].text == "115"
    theirs = lines["Loopy BP", "paper"]
    assert [cell.text for cell in theirs[2:11]] == [printed(v)[:4] for v in SCENE_PAPER["raw"]["LBP"]]
    assert [cell.strong for cell in theirs[2:11]] == [True, *[False] * 5, True, False, False]
    assert lines["LocPMAP", "paper"][10].strong
    assert ("LocPMAP, conditional", "paper") not in lines
    assert ("Global Perturb-and-MAP", "ours") not in lines  # not in the paper and not LocPMAP
    assert deep is not None
    (line,) = [row for row in deep.rows if (row[0].text, row[1].text) == ("ICM", "paper")]
    assert [cell.text for cell in line[2:4]] == [".843", ".628"]  # the deep column, not the raw one


def test_paper_table_without_the_paper_or_its_model() -> None:
    content = invented_scenes()
    content["protocol"]["paper"] = None
    record = record_of(content)
    table = paper_table(record, record.levels[0])
    assert table is not None
    assert {row[1].text for row in table.rows} == {"ours"}
    assert "paper" not in table.caption
    content["rows"] = [row for row in content["rows"] if row["model"] != "pl-edges"]
    assert paper_table(record_of(content), record.levels[0]) is None


def test_short_row_of_the_paper_is_filled_with_dashes() -> None:
    content = invented_scenes()
    content["protocol"]["paper"] = {"setting": "", "raw": {"ICM": [0.5], "LBP": []}, "deep": {}}
    record = record_of(content)
    table = paper_table(record, record.levels[0])
    assert table is not None
    lines = {row[0].text: [cell.text for cell in row[2:11]] for row in table.rows if row[1].text == "paper"}
    assert lines == {"ICM": [".500", *["–"] * 8], "Loopy BP": ["–"] * 9}


def test_decoder_tables_have_the_measures_of_scenes(content: Content, record: Record) -> None:
    table = decoder_table(record, record.levels[0], record.model("pl-edges"), SCENE_MEASURES)
    assert table is not None
    assert table.caption == f"{PL}, boosted unaries"
    assert table.columns[1:] == ("mean IoU", "accuracy", "NLL", "Brier", "ECE", "AURC", "s / image", "images")
    name, mean, accuracy, nll, *_, seconds, images = row_of(table, "LocPMAP, conditional")
    cell = {"level": "boosted", "model": "pl-edges", "decoder": "locpmap-conditional"}
    assert re.split(r"\s±\s", mean.strip("*")) == plus_minus(measured(content, "mean_iou", **cell))
    assert accuracy == f"*{printed(measured(content, 'accuracy', **cell).mean())}*"
    assert nll.startswith(f"*{printed(measured(content, 'nll', **cell).mean())}")
    assert (seconds, images) == ("*0.500*", "115")  # 57.5 s for 115 images
    assert row_of(table, "Global Perturb")[1].startswith(".")  # better, but on 5 images
    assert name == "LocPMAP, conditional"
    assert row_of(table, "ICM-iter")[3].startswith(".")
    (icm,) = [row for row in table.rows if row[0].text == "ICM"]
    assert [cell.text for cell in icm[3:7]] == ["–"] * 4  # no probabilities


def test_absent_measures_get_no_column(tmp_path: Path) -> None:
    content = quick()
    for row in content["rows"]:
        row |= dict.fromkeys(("ece", "brier", "accuracy"))
    text = write_report(write_scenes(tmp_path, content, n_scenes=1)).read_text()
    heads = re.findall(r'<th scope="col" class="number">([^<]*)</th>', text)
    assert {"mean IoU", "NLL", "AURC", "s / image"} <= set(heads)
    assert not {"ECE", "Brier", "accuracy", "score", "IoU bg", "image IoU"} & set(heads)


def test_label_table_shows_unaries_and_one_locpmap_per_model(content: Content, record: Record) -> None:
    table = label_table(record, record.levels[0])
    assert table is not None
    names = [(row[0].text, row[1].text) for row in table.rows]
    assert names == [
        ("unaries alone", "argmax of the unary"),
        (PL, "LocPMAP, conditional"),
        (CONSISTENT, "LocPMAP, conditional"),
    ]
    values = [
        measured(content, "iou", level="boosted", model=model, decoder=decoder).mean(axis=0)
        for model, decoder in (
            ("unaries", "argmax"),
            ("pl-edges", "locpmap-conditional"),
            ("consistent-edges", "locpmap-conditional"),
        )
    ]
    best = np.argmax(values, axis=0)
    assert len(set(best)) > 1  # otherwise a wrong bold cell would not be detected
    for label in range(len(SCENE_LABELS)):
        column = [row[2 + label] for row in table.rows]
        assert [cell.text for cell in column] == [printed(line[label]) for line in values]
        assert [cell.strong for cell in column] == [n == best[label] for n in range(3)]


def test_absent_label_is_a_dash() -> None:
    content = invented_scenes()
    for row in content["rows"]:
        row["iou"] = [None, *row["iou"][1:]]
    record = record_of(content)
    table = label_table(record, record.levels[0])
    assert table is not None
    assert {row[2].text for row in table.rows} == {"–"}


# comparison with the unaries


def test_comparison_is_the_paired_difference_to_the_unaries_of_its_level(content: Content, record: Record) -> None:
    for level in record.levels:
        for comparison in compare_with_unaries(record, level):
            opponent = "scaled" if "scaling" in comparison.opponent else "unaries"
            assert [each.measure.title for each in comparison.differences] == ["mean IoU", "NLL", "AURC"]
            for each, key in zip(comparison.differences, ("mean_iou", "nll", "aurc"), strict=True):
                ours = measured(
                    content, key, level=level.name, model=comparison.model.name, decoder=comparison.form.name
                )
                gap = ours - measured(content, key, level=level.name, model=opponent, decoder="argmax")
                assert each.change.mean == pytest.approx(gap.mean(), abs=1e-12)
                assert each.change.error == pytest.approx(gap.std(ddof=1) / np.sqrt(2), abs=1e-12)


def test_findings_report_where_the_crf_wins_and_loses(content: Content, record: Record) -> None:
    boosted, _, pretrained = (dict(in_words(record, level)) for level in record.levels)
    text = boosted["Boosted unaries, compared with the unaries alone"]
    assert text.startswith(f"yes in mean IoU, NLL and AURC. LocPMAP (conditional) on the model “{CONSISTENT}”")
    ours = measured(content, "mean_iou", level="boosted", model="consistent-edges", decoder="locpmap-conditional")
    theirs = measured(content, "mean_iou", level="boosted", model="unaries", decoder="argmax")
    means = f"mean IoU {printed(ours.mean())}, compared with {printed(theirs.mean())}"
    assert f"{means} (difference: +{printed((ours - theirs).mean())}" in text
    scaled = boosted["Boosted unaries, compared with the unaries after temperature scaling"]
    assert scaled.startswith("yes in mean IoU and AURC, no in NLL. ")
    assert len(pretrained) == 2
    assert all(text.startswith("no in mean IoU, NLL and AURC. LocPMAP") for text in pretrained.values())


def test_tuned_form_represents_locpmap() -> None:
    content = invented_scenes(levels=("boosted",))
    plain = next(decoder for decoder in content["decoders"] if decoder["name"] == "locpmap")
    content["decoders"].append(plain | {"name": "locpmap-tuned-sites", "title": "LocPMAP, tuned", "paper": None})
    rows = [row for row in content["rows"] if row["decoder"] == "locpmap"]
    content["rows"] += [row | {"decoder": "locpmap-tuned-sites", "mean_iou": row["mean_iou"] - 0.1} for row in rows]
    record = record_of(content)
    assert {comparison.form.name for comparison in compare_with_unaries(record, record.levels[0])} == {
        "locpmap-tuned-sites"
    }
    table = label_table(record, record.levels[0])
    assert table is not None
    assert [row[1].text for row in table.rows[1:]] == ["LocPMAP, tuned"] * 2


def test_better_values_are_bold_in_the_comparison_table(record: Record) -> None:
    boosted, _, pretrained = (
        comparison_table(record, level, compare_with_unaries(record, level)) for level in record.levels
    )
    lines = {(row[0].text, row[1].text): [cell.strong for cell in row[2:5]] for row in boosted.rows}
    assert lines[CONSISTENT, "the unaries alone"] == [True, True, True]
    assert lines[CONSISTENT, "the unaries after temperature scaling"] == [True, False, True]
    assert not any(cell.strong for row in pretrained.rows for cell in row)


def test_a_difference_within_two_standard_errors_is_neither_yes_nor_no() -> None:
    content = invented_scenes(levels=("boosted",))
    content["rows"] = [row for row in content["rows"] if row["decoder"] in ("argmax", "locpmap", "icm")]
    for row in content["rows"]:
        row["mean_iou"] = 0.6 if row["decoder"] == "argmax" else (0.63, 0.58)[row["seed"]]
    record = record_of(content)
    (text, *_) = dict(in_words(record, record.levels[0])).values()
    assert text.startswith("yes in NLL and AURC, no clear difference in mean IoU. ")


def test_one_seed_and_unequal_images_in_comparisons() -> None:
    record = record_of(quick())
    for text in dict(in_words(record, record.levels[0])).values():
        assert "on one seed" in text
        assert "standard error" not in text
    content = change_rows(quick(), lambda row: row.update(n_images=60), decoder="argmax")
    record = record_of(content)
    assert compare_with_unaries(record, record.levels[0]) == []
    assert in_words(record, record.levels[0]) == []


def test_page_reports_where_another_decoder_is_first(tmp_path: Path) -> None:
    content = change_rows(quick(), lambda row: row.update(mean_iou=0.9, nll=0.01), model="pl-edges", decoder="gibbs")
    words = Page(write_report(write_scenes(tmp_path, content, n_scenes=1)).read_text()).words
    assert f"LocPMAP is first in mean IoU on 1 of 2 models, not on “{PL}”; LocPMAP is first in NLL on 1 of 2" in words
    assert "Where another decoder beats LocPMAP in mean IoU" in words
    assert "Gibbs with .9000 beats LocPMAP" in words


# images


def test_windows_are_bounding_boxes_of_scenes(record: Record) -> None:
    name = record.levels[0].name
    pictures = {
        f"{name}/input": np.full((3, 9, 10, 3), 127, np.uint8),
        f"{name}/truth": np.full((3, 9, 10), -1, np.int8),
    }
    pictures[f"{name}/input"][0, 2:5, 3:7] = 90
    pictures[f"{name}/truth"][1, 1, 2] = 0
    pictures[f"{name}/pl-edges/icm/labels"] = np.full((3, 9, 10), -1, np.int8)
    pictures[f"{name}/pl-edges/icm/labels"][1, 6, 4] = 3
    found = windows(pictures, record.levels[0])
    assert found == [(slice(2, 5), slice(3, 7)), (slice(1, 7), slice(2, 5)), (slice(0, 9), slice(0, 10))]


def test_colours_of_valid_and_invalid_labels() -> None:
    shown = coloured(np.array([[0, 7, -1, 8, 127]], np.int8), 8)
    expected = [COLOURS[0], COLOURS[7], *[NO_LABEL] * 3]
    assert ["#" + bytes(pixel).hex().upper() for pixel in shown[0]] == expected
    assert len(set(COLOURS)) == len(COLOURS) == 8


def test_errors_are_counted_only_at_labelled_pixels() -> None:
    truth, labels = np.array([[0, 1, -1, 9]]), np.array([[0, 2, 3, 3]])
    wrong, known = errors(labels, truth, 8)
    assert wrong.tolist() == [[False, True, False, False]]
    assert known.tolist() == [[True, True, False, False]]
    image = marked(np.zeros((1, 4, 3), np.uint8), wrong, known)
    assert ["#" + bytes(pixel).hex().upper() for pixel in image[0]] == ["#969696", WRONG, NO_LABEL, NO_LABEL]


def test_error_curve_is_ordered_by_variance() -> None:
    variance = np.array([0.9, 0.1, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
    wrong = np.array([True, False, True, False, False, False, True, False, False, True])
    found = ranked(variance, wrong)
    assert found is not None
    pixels, share = found
    assert pixels.tolist() == [0, 0.1, 0.5, 0.6, 1]
    assert share.tolist() == [0, 0.25, 0.5, 0.5, 1]
    order = np.random.default_rng(0).permutation(10)
    again = ranked(variance[order], wrong[order])
    assert again is not None
    assert again[1].tolist() == share.tolist()  # the order of ties does not matter
    assert ranked(variance, np.zeros(10, bool)) is None


def test_error_curves_exclude_pixels_without_label_or_variance(content: Content, record: Record) -> None:
    pictures = scene_pictures(content)
    name = "boosted/pl-edges/locpmap-conditional"
    pictures[f"{name}/variance"][0] = np.nan
    (line, _) = error_curves(record, pictures, record.levels[0])
    assert (line.model.name, line.form.name) == ("pl-edges", "locpmap-conditional")
    truth, labels = pictures["boosted/truth"][1:], pictures[f"{name}/labels"][1:]
    known = truth != -1
    assert line.error_rate == pytest.approx((labels != truth)[known].mean())
    assert 0 < line.error_rate < 0.2
    order = np.argsort(-pictures[f"{name}/variance"][1:][known].astype(float), kind="stable")
    first = (labels != truth)[known][order][: order.size // 5].sum() / (labels != truth)[known].sum()
    assert line.among(0.2) == pytest.approx(first, abs=0.02)


def test_figures_show_the_paper_model_and_the_best(content: Content, record: Record) -> None:
    pictures = scene_pictures(content)
    gallery = Gallery(record, pictures, record.levels[0])
    papers, best = gallery.papers_model(), gallery.best()
    assert papers is not None
    assert papers.name == "pl-edges"
    assert best is not None
    assert (best[0].name, best[1].name) == ("consistent-edges", "locpmap-conditional")
    pictures["boosted/truth"][0][pictures["boosted/truth"][0] == 7] = 3
    assert gallery.with_pictured(2) == [1, 2]  # the first has no object
    assert gallery.first(9) == [0, 1, 2]


# pages


def test_page_is_self_contained(run: Path) -> None:
    page = Page((run / "report.html").read_text())
    assert page.open == []
    assert "script" not in page.tags
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    links = {address[1:] for address in page.addresses if address.startswith("#")}
    assert links <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("img") == len(list((run / "figures").iterdir()))
    for words in (
        "600 training and 115 test photographs of at most 320×320 pixels, 8 labels, 3 kinds of unaries, 2 seeds",
        "sky, tree, road, grass, water, building, mountain or object",
        "Unaries of the kind deeplab.",
        "pixels with the highest variance contain",
        "Results per label",
        "4" * 64,
    ):
        assert words in page.words
    for words in ("σ", "noise level", "foreground", "None", " nan"):
        assert words not in page.words


def test_every_figure_is_written(run: Path) -> None:
    names = {path.name for path in (run / "figures").iterdir()}
    levels = ("boosted", "deeplab", "pretrained")
    kinds = ("calibration", "risk-coverage", "figure-3", "errors", "errors-found")
    expected = {f"{kind}-{level}.png" for kind in kinds for level in levels} | {"teaser.png"}
    expected |= {f"decoders-{level}-pl-edges.png" for level in levels}
    expected |= {f"decoders-{level}-consistent-edges.png" for level in levels[:2]}  # better than the paper there
    expected |= {f"figure-2-{level}-pl-edges.png" for level in levels}
    expected |= {f"figure-2-{level}-consistent-edges.png" for level in levels[:2]}  # better than the paper there
    assert names == expected
    for path in (run / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    teaser = (run / "figures" / "teaser.png").read_bytes()
    assert int.from_bytes(teaser[16:20]) > 1000  # as wide as the page


@pytest.mark.slow
def test_report_is_reproducible(run: Path, tmp_path: Path) -> None:
    again = write_report(write_scenes(tmp_path / "stanford", invented_scenes()))
    assert again.read_bytes() == (run / "report.html").read_bytes()


def test_curves_compare_with_the_unaries(content: Content, record: Record) -> None:
    pairs = drawn_pairs(record, record.levels[0])
    assert [pair.name for pair in pairs[:4]] == [
        "unaries/argmax",
        "scaled/argmax",
        "consistent-edges/locpmap-conditional",
        "pl-edges/locpmap",
    ]
    assert len(pairs) == 6
    assert {pair.decoder.family for pair in pairs[4:]} == {"paper"}


def test_markdown_contains_no_photographs(tmp_path: Path) -> None:
    levels = ("boosted", "deeplab")
    run = write_scenes(tmp_path / "stanford", invented_scenes(seeds=(0,), levels=levels), n_scenes=1)
    text = write_markdown([run], tmp_path / "results.md").read_text()
    shown = re.findall(r"\]\(figures/(.*?)\)", text)
    assert {name.removeprefix("stanford-") for name in shown if "decoders" not in name} == {
        f"{kind}-{level}.png" for kind in ("calibration", "risk-coverage", "errors-found") for level in levels
    }
    assert {path.name for path in (tmp_path / "figures").iterdir()} == set(shown)
    assert "Not shown here because it contains images of the data set: Photographs, labels, variance and true" in text
    assert "| LocPMAP | paper | .854 |" in text
    assert "| σ" not in text


def test_markdown_page_of_both_kinds_of_runs(tmp_path: Path) -> None:
    digits = invented(seeds=(0,), models=("raw-pl",), levels=("variance",), paper=False) | {
        "ablation": [],
        "curves": [],
    }
    runs = [write_run(tmp_path / "digits", digits), write_scenes(tmp_path / "stanford", quick(), n_scenes=1)]
    text = write_markdown(runs, tmp_path / "results.md").read_text()
    assert "figures/digits-teaser.png" in text  # as before
    assert "figures/stanford-teaser.png" not in text


def test_settings_list_unaries_instead_of_noise(record: Record) -> None:
    facts = {row[0].text: row[1].text for row in facts_table(record).rows}
    assert facts["unaries"] == "boosted, deeplab, pretrained"
    assert facts["images"].startswith("at most 320×320, labels sky, tree")
    assert not {"noise", "σ per seed"} & set(facts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(rows=[]), ["LocPMAP was not run", "was not run on the boosted unaries", "no curves"]),
        (lambda c: c.update(fast=True, fits=[]), ["This is a smoke run", "only one seed"]),
        (lambda c: c["protocol"].update(paper=None), ["has no numbers of the paper"]),
        (lambda c: c["protocol"].update(labels=["sky"], pictured=[0, 0]), ["photographs of outdoor scenes: sky"]),
        (
            lambda c: c.update(rows=[row for row in c["rows"] if row["model"] != "unaries"]),
            ["compared with the unaries after temperature scaling"],
        ),
        (lambda c: c.update(rows=[r for r in c["rows"] if r["decoder"] == "argmax"]), ["nothing to rank"]),
        (
            lambda c: change_rows(c, lambda row: row.update(refused="too many labels", nll=None), decoder="gibbs"),
            ["refused: too many labels"],
        ),
    ],
    ids=["no rows", "smoke run", "no paper", "one label", "no unaries", "no random field", "refused"],
)
def test_sparse_record_gives_a_report(change: Callable[[Content], Any], words: list[str], tmp_path: Path) -> None:
    content = quick()
    change(content)
    found = Page(write_report(write_scenes(tmp_path, content, n_scenes=1)).read_text()).words
    for sentence in words:
        assert sentence in found


@pytest.mark.parametrize("kept", [(), ("labels",), ("probability",), ("labels", "variance"), ("variance",)], ids=str)
def test_report_with_missing_pictures(kept: tuple[str, ...], tmp_path: Path) -> None:
    content = quick()
    folder = write_scenes(tmp_path, content)
    pictures = scene_pictures(content, n_scenes=1)
    few = {k: v for k, v in pictures.items() if k.endswith(("/input", "/truth", *(f"locpmap/{kind}" for kind in kept)))}
    np.savez(folder / "pictures.npz", **few)  # type: ignore[arg-type]
    words = Page(write_report(folder).read_text()).words
    assert ("This run has no example images of LocPMAP on the boosted unaries" in words) == (
        kept in ((), ("variance",))
    )
    assert ("The paper's Figure 3" in words) == ("probability" in kept)
    assert ("pixels with the highest variance contain" in words) == (kept == ("labels", "variance"))


def test_report_without_photographs(tmp_path: Path) -> None:
    folder = write_scenes(tmp_path, quick())
    (folder / "pictures.npz").unlink()
    page = Page(write_report(folder).read_text()).words
    assert "This run has no example images of LocPMAP on the boosted unaries" in page
    assert "The paper's Figure" not in page


def test_invalid_values_in_pictures_are_drawn(tmp_path: Path) -> None:
    content = quick()
    folder = write_scenes(tmp_path, content)
    pictures = scene_pictures(content)
    for name, picture in pictures.items():
        if name.endswith(("/probability", "/variance")):
            picture[0] = np.nan
            picture[1] = np.inf
        if name.endswith("/labels"):
            picture[2] = 100
    pictures["boosted/input"][0], pictures["boosted/truth"][0] = 127, -1
    np.savez(folder / "pictures.npz", **pictures)  # type: ignore[arg-type]
    assert write_report(folder).is_file()


def test_text_of_a_record_is_escaped_in_pages_and_paths(tmp_path: Path) -> None:
    content = json.loads(
        json.dumps(quick(curves=invented_scenes()["curves"][:20])).replace('"boosted"', '"../../<b>up</b>"')
    )
    hostile = '<script>alert("x")</script>$\\bad$'
    content["protocol"]["labels"][1] = hostile
    for entry in (*content["models"], *content["decoders"], *content["levels"]):
        entry["says"] = entry["title"] = hostile
    folder = write_scenes(tmp_path / "a" / "b", content, n_scenes=1)
    page = Page(write_report(folder).read_text())
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}


# bad input


def damaged() -> Iterator[Any]:
    """Yield ways to damage a folder: a name, pictures to replace or edits of the record, and words of the error."""
    shape = (3, 40, 40)

    def arrays(**changes: np.ndarray | None) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            kept = scene_pictures(content) | {name.replace("__", "/"): array for name, array in changes.items()}
            np.savez(folder / "pictures.npz", **{k: v for k, v in kept.items() if v is not None})  # type: ignore[arg-type]

        return damage

    def edited(edit: Callable[[Content], Any]) -> Callable[[Path, Content], None]:
        def damage(folder: Path, content: Content) -> None:
            edit(content)
            (folder / "result.json").write_text(json.dumps(content))

        return damage

    yield "no input", arrays(boosted__input=None), "holds no boosted/input and boosted/truth, expected both"
    yield "no truth", arrays(boosted__truth=None), "holds no boosted/input and boosted/truth, expected both"
    yield "grey", arrays(boosted__input=np.zeros(shape, np.uint8)), "of shape (3, 40, 40), expected (n, H, W, 3)"
    yield "flat", arrays(boosted__input=np.zeros((40, 3), np.uint8)), "expected (n, H, W, 3)"
    yield "float", arrays(boosted__input=np.zeros((*shape, 3))), "boosted/input of float64, expected colours"
    yield "half a label", arrays(boosted__truth=np.zeros(shape)), "boosted/truth of float64, expected whole numbers"
    yield "sizes", arrays(boosted__truth=np.zeros((3, 40, 39), np.int8)), "boosted/truth of shape (3, 40, 39)"
    wrong = np.zeros((*shape, 3), np.float16)
    yield (
        "labels shown",
        arrays(**{"boosted__pl-edges__locpmap__probability": wrong}),
        "of shape (3, 40, 40, 3), expected (n, H, W, 2) like the input",
    )
    yield "none", arrays(boosted__input=np.zeros((0, 40, 40, 3), np.uint8)), "of shape (0, 40, 40, 3)"
    yield "pictured", edited(lambda c: c["protocol"].update(pictured=[1, 8])), "pictured is [1, 8], expected indices"
    yield "words", edited(lambda c: c["protocol"].update(pictured="tree")), "pictured is 'tree', expected a list"
    yield "noise", edited(lambda c: c.update(experiment="digits")), "protocol has no noise, expected its name"


CASES = [pytest.param(*case[1:], id=case[0]) for case in damaged()]


@pytest.mark.parametrize(("damage", "words"), CASES)
def test_damaged_folder_is_refused_in_one_sentence(
    damage: Callable[[Path, Content], None], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = quick()
    folder = write_scenes(tmp_path / "run", content)
    damage(folder, content)
    Run(capsys, "report", folder).check_refusal(words)
    assert not (folder / "report.html").exists()
    assert not (folder / "figures").exists()
