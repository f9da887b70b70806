"""Code blocks of the pages run, links resolve, and figures of the gallery agree with their captions."""

from __future__ import annotations

import posixpath
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs.decoder_tables import MODELS, PAGE, RUNS, _cells, _read, rewritten
from scipy import ndimage

import locpmap as lp
from locpmap.inference.registry import DECODERS

DOCS = Path(__file__).parents[1] / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
PAGES = sorted(DOCS.glob("*.md")) + DECISIONS
GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text("utf-8")) and page.stem != "recipes"]  # test_recipes
OPTIONAL = ("torch", "dask", "sklearn")
CLAIMS = {  # what the text of a page states about its examples, checked after the last block
    "getting-started": "(alone == truth).mean() < (refined.labels == truth).mean() and 0.05 + before < after"
    " and (high - low > 2 * (area.interval(0.9)[1] - area.interval(0.9)[0])).all()"
    " and (best == truth).mean() < (result.labels == truth).mean()",
    "deciding": "0.05 + before < after and (careful.labels != truths)[kept].mean() < 0.02 and 0.9 < ious[1] < ious[0]",
    "refining": "(alone == truth).mean() + 0.03 < min((result.labels == truth).mean(), (mine.labels == truth).mean())",
    "uncertainty": "(wider.std[:, 1] > area.std[:, 1]).all() and (area.std[:, 1] > independent_std).mean() > 0.5",
    "extending": "result.score < lp.infer(potentials, 'icm').score and (result.labels == unary.argmax(axis=-1)).all()",
    "decoders": "fast.score < thorough.score < best.score",
    "models": "(part.labels == whole.labels[4:]).all()",
}
# The records of the paper's runs are too large for a source distribution of the library.
needs_records = pytest.mark.skipif(not (DOCS.parent / "results").is_dir(), reason="not a clone of the repository")
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<!\$)\$([^$\n]+)\$(?!\$)", re.DOTALL)


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(page: Path) -> str:
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^```(?!\{).*?^```", "", text(page), flags=re.MULTILINE | re.DOTALL))


# Code


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in WITH_CODE])
def test_every_code_block_of_a_page_runs_and_prints(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the blocks of a page in order, from an empty session; run those for a GPU on the CPU, on smaller images."""
    blocks = BLOCK.findall(text(page))
    blocks = [b.replace("240, 320", "60, 80").replace('"cuda"', '"cpu"') if '"cuda"' in b else b for b in blocks]
    for package in OPTIONAL:
        if any(re.search(rf"^(import|from) {package}\b", block, flags=re.MULTILINE) for block in blocks):
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        place = f"{page.name}, block {number}"
        exec(compile(block, place, "exec", dont_inherit=True), session)
        assert capsys.readouterr().out.strip(), f"{place} prints no result"
    assert eval(CLAIMS.get(page.stem, "True"), session)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs the gallery script with a word in its name and returns its variables and figures."""
    pytest.importorskip("skimage")
    pytest.importorskip("locpmap_paper")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: None)

    def run_script(word: str) -> tuple[dict[str, Any], list[Any]]:
        (script,) = (path for path in GALLERY if word in path.stem)
        with plt.style.context(DOCS / "gallery/calm.mplstyle"):
            session = runpy.run_path(str(script))
            figures = [plt.figure(number) for number in plt.get_fignums()]
            for figure in figures:
                figure.canvas.draw()
        assert figures
        return session, figures

    yield run_script
    plt.close("all")


def test_every_gallery_script_has_a_test():
    words = re.findall(r'run\("(\w+)"\)', text(Path(__file__)))
    assert [sum(word in path.stem for word in words) for path in GALLERY] == [1] * len(GALLERY)


def test_every_decoder_is_in_the_figure(run: Any) -> None:
    session, (figure,) = run("every_decoder")
    shown = {name for name, _ in session["decoders"].values()}
    assert shown | {"exact"} == set(DECODERS)
    wrong = {title: np.mean(result.labels != session["truth"]) for title, result in session["results"].items()}
    ours = min(share for title, share in wrong.items() if title.startswith("locpmap"))
    assert max(wrong[name] for name in ("mean_field", "lbp", "graph_cut")) < ours, "the caption states this"
    second_row = [ax.get_title().split("\n")[0] for ax in figure.axes[4:8]]
    assert all(session["results"][title].probability is None for title in second_row)


def test_refining_reduces_the_number_of_wrong_pixels(run: Any) -> None:
    session, _ = run("refine_coarse_logits")
    truth, chimney = session["truth"], (slice(74, 82), slice(215, 221))
    assert np.mean(session["result"].labels != truth) < 0.8 * np.mean(session["coarse"] != truth)
    assert (session["coarse"][chimney] != truth[chimney]).any(), "the chimney is too thin for the coarse grid"


def test_conditional_probabilities_need_fewer_samples(run: Any) -> None:
    session, _ = run("how_many_samples")
    votes, conditional, counts = *(np.array(session["error"][k]) for k in ("votes", "conditional")), session["counts"]
    assert (conditional < votes).all()
    gradient = np.polyfit(np.log(counts), np.log(conditional), 1)[0]
    assert gradient == pytest.approx(-0.5, abs=0.05)


def test_joint_samples_cover_the_area_more_often_than_independent_pixels(run: Any) -> None:
    session, _ = run("error_bars_on_an_area")
    truth = session["truth"]
    whole = ((session["low"] <= truth) & (truth <= session["high"])).mean()
    coins = ((session["low_coins"] <= truth) & (truth <= session["high_coins"])).mean()
    assert coins < 0.75 < whole, "independent pixels give intervals that are far too narrow"


def test_consistent_learning_nearly_halves_the_loss(run: Any) -> None:
    session, _ = run("consistent_learning")
    decoded, truth = session["decoded"], session["test"]
    loss = {name: lp.metrics.negative_log_likelihood(result.probability, truth) for name, result in decoded.items()}
    assert loss["consistent"] < 0.55 * loss["pseudolikelihood"]
    iou = [lp.metrics.intersection_over_union(result.labels, truth, 2).mean() for result in decoded.values()]
    assert abs(iou[0] - iou[1]) < 0.02, "the labels are about as accurate"


def test_a_graph_reduces_the_number_of_wrong_points(run: Any) -> None:
    session, _ = run("a_graph")
    wrong = {title: np.mean(labels != session["truth"]) for title, labels in session["answers"].items()}
    assert wrong["with its neighbours"] < 0.3 * wrong["by itself"]
    ends = session["truth"][session["edges"]]
    border = np.unique(session["edges"][ends[:, 0] != ends[:, 1]])
    entropy = session["result"].entropy
    assert entropy[border].mean() > 1.2 * np.delete(entropy, border).mean(), "entropy is higher along the borders"


def test_error_fields_give_samples_without_specks_and_with_different_areas(run: Any) -> None:
    session, _ = run("samples_of_whole_maps")
    maps = {title: (samples[..., None] == np.arange(5)) for title, samples in session["samples"].items()}
    components = {
        title: sum(ndimage.label(one[..., k])[1] for one in each for k in range(5)) for title, each in maps.items()
    }
    assert components["error fields"] < 0.05 * min(components["independent pixels"], components["one shared error"])
    spread = {title: each.mean(axis=(1, 2)).std(axis=0).sum() for title, each in maps.items()}
    assert spread["independent pixels"] < 0.1 * min(spread["one shared error"], spread["error fields"])
    coffee = {title: each[:, 60:200, 180:400, 3].sum(axis=(1, 2)).std() for title, each in maps.items()}
    assert coffee["independent pixels"] < 0.1 * coffee["error fields"], "the outline of the coffee moves"


# Links


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_are_plain_markdown():
    """Roles of Sphinx are shown as they are written where pages are read in the repository."""
    for page in PAGES:
        if document(page) != "api":
            assert not re.search(r"\{[a-z:]+\}`", text(page)), document(page)


def test_links_between_files_resolve():
    found = 0
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            goal = page.parent / path if path else page
            assert goal.exists(), f"{document(page)} links to {target}"
            assert not anchor or anchor in anchors(goal), f"{document(page)} links to {target}"
            found += 1
    assert found > 20


def document(page: Path) -> str:
    """Return the name of a page's Sphinx document."""
    return page.relative_to(DOCS).with_suffix("").as_posix()


def documents() -> set[str]:
    """Return the names of Sphinx documents: the pages, and those that sphinx-gallery writes for the scripts."""
    generated = {f"generated/gallery/{script.stem}" for script in GALLERY} | {"generated/gallery/index"}
    return generated | {document(page) for page in PAGES}


def resolved(page: Path, target: str) -> str:
    """Return the document that a target on a page refers to; targets are relative to the page's folder."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(document(page)), target))


def test_references_to_documents_resolve():
    known = documents()
    for page in PAGES:
        targets = re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", re.sub(r"\s+", " ", text(page)))
        assert {resolved(page, target) for target in targets} <= known, document(page)
    for script in GALLERY:
        for target in re.findall(r":doc:`[^`<]*<([^`>]+)>`", re.sub(r"\s+", " ", text(script))):
            assert f"generated/gallery/{target}" in known, script.name


def toctree_entries(page: Path) -> list[str]:
    """Return the documents that the tables of contents of a page list."""
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text(page), flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [resolved(page, re.sub(r".*<(.+)>", r"\1", line)) for line in lines]


def test_every_page_is_in_one_table_of_contents():
    entries = sorted(entry for page in PAGES for entry in toctree_entries(page))
    pages = {document(page) for page in PAGES} - {"index"}
    assert entries == sorted(pages | {"generated/gallery/index"})


# Agreement with the library and the records


def test_the_api_reference_lists_every_public_name():
    nn, estimators = pytest.importorskip("locpmap.nn"), pytest.importorskip("locpmap.estimators")
    page = text(DOCS / "api.md")
    names = re.findall(r"^   (\w+)$|^\.\. autoclass:: (\w+)$", page, flags=re.MULTILINE)
    listed = sorted(a or b for a, b in names)
    assert listed == sorted([*lp.__all__, *nn.__all__, *estimators.__all__, *lp.integrations.__all__])


def test_every_command_is_documented():
    from locpmap.cli.commands import OTHERS, OWN

    described = re.findall(r"^```\{command-help\} ([\w-]+)$", text(DOCS / "command-line.md"), flags=re.MULTILINE)
    assert sorted(described) == sorted([*OWN, *OTHERS])


def test_formulas_convert_to_mathml():
    mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
    formulas = [block or inline for page in PAGES for block, inline in FORMULA.findall(without_code(page))]
    assert len(formulas) > 50
    for formula in formulas:
        assert mathml.tex2mathml(formula, as_block=True).startswith("<math")


@needs_records
def test_decoder_tables_match_the_records():
    assert rewritten(text(PAGE)) == text(PAGE), "run: python docs/decoder_tables.py"


@needs_records
def test_result_tables_match_the_records():
    result_tables = pytest.importorskip("docs.result_tables")  # imports the paper's package
    page = text(result_tables.PAGE)
    assert result_tables.rewritten(page) == page, "run: python docs/result_tables.py"
    assert len(page.splitlines()) < 120  # two screens


def test_every_figure_is_shown_on_a_page():
    pages = "".join(text(page) for page in (*PAGES, DOCS.parent / "README.md"))
    assert not [path.name for path in (DOCS / "figures").iterdir() if f"figures/{path.name}" not in pages]


@needs_records
def test_claims_of_the_decoder_page_match_the_records():
    def column(run: str, level: str, model: str, place: int) -> dict[str, float]:
        cells = {name: cell.split(" / ")[place] for name, cell in _cells(_read(RUNS[run]), level, model).items()}
        return {name: float(cell.strip("*")) for name, cell in cells.items() if cell[0] != "–" and cell[-1:] != "–*"}

    pl, consistent, joint = MODELS
    for run in RUNS:
        for level in ("variance", "amplitude"):
            iou = column(run, level, pl, 0)
            assert max(iou, key=lambda name: iou[name]) == "locpmap-tuned"
            assert iou["locpmap-perturbed-conditional"] > iou["locpmap-conditional"]
            iou = column(run, level, consistent, 0)
            ours = max(value for name, value in iou.items() if name.startswith("locpmap"))
            others = [value for name, value in iou.items() if not name.startswith("locpmap")]
            assert ours > max(others) if run == "MNIST" else ours < min(iou["lbp"], iou["mean-field"])
        iou, nll = column(run, "variance", joint, 0), column(run, "variance", joint, 1)
        level_ones = [iou[name] for name in ("lbp", "mean-field", "locpmap-perturbed-conditional")]
        assert max(level_ones) - min(level_ones) < 0.0015  # rounded to three digits
        assert nll["locpmap-conditional"] == min(nll.values())
