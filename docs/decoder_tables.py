"""Render the tables of docs/decoders.md from recorded runs: `python docs/decoder_tables.py`.

The text between the page's two markers is replaced. The rest of the page is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/decoders.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RUNS = {"MNIST": "results/mnist/result.json", "silhouettes": "results/caltech/result.json"}
BENCHMARK = "benchmarks/results/cpu-intel-r-xeon-r-processor-2-10ghz-2-cores.json"
MODELS = {
    "raw-pl": "Weights learned by pseudolikelihood, on intensities",
    "raw-consistent": "Weights learned consistently, on intensities",
    "deep-consistent-far": "Network and weights learned together and consistently",
}
TASKS = {
    "T1": "500 digits, 28×28, 2 labels",
    "T2": "240×320, 8 labels",
    "T3": "375×500, 21 labels",
    "T4": "2048×2048, 8 labels",
}


def rewritten(page: str) -> str:
    """Return the page with its measured part rendered from the records."""
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    runs = {name: _read(path) for name, path in RUNS.items()}
    parts = [before, *quality(runs), *speed(_read(BENCHMARK)), after]
    return "\n\n".join(parts)


def quality(runs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Yield one table per objective: mean IoU / NLL of every decoder, averaged over seeds."""
    sources = ", ".join(f"`{path}`" for path in RUNS.values())
    yield (
        f"Mean IoU / negative log-likelihood per pixel on test images, means over {_seeds(runs)} seeds, from {sources}."
        " The best value of each column is in bold. An asterisk marks slow decoders that ran on the first few hundred"
        " images only; they are not compared. A dash marks values that a decoder does not compute or models that it"
        ' cannot decode. "Tuned" is the best of 18 settings on held-out images; every other decoder has one setting.'
    )
    for model, title in MODELS.items():
        columns = [
            (name, level["name"], f"{name}, σ = {level['sigma'][0]:.2g}")
            for name, run in runs.items()
            for level in run["levels"]
        ]
        cells = {column: _cells(runs[column[0]], column[1], model) for column in columns}
        titles = {d["name"]: d["title"] for run in runs.values() for d in run["decoders"]}
        decoders = [name for name in titles if any(name in cells[column] for column in columns)]
        rows = [[titles[name], *(cells[column].get(name, "–") for column in columns)] for name in decoders]
        yield f"**{title}** (`{model}`)"
        yield table(["", *(heading for *_, heading in columns)], rows)


def _cells(run: dict[str, Any], level: str, model: str) -> dict[str, str]:
    """Return `IoU / NLL` of every decoder in one column."""
    found: dict[str, tuple[float, float | None, bool]] = {}
    rows = [
        row for row in run["rows"] if (row["level"], row["model"]) == (level, model) and row["mean_iou"] is not None
    ]
    most = max((row["n_images"] for row in rows), default=0)
    for name in dict.fromkeys(row["decoder"] for row in rows):
        own = [row for row in rows if row["decoder"] == name]
        nll = None if own[0]["nll"] is None else round(mean(row["nll"] for row in own), 3)
        found[name] = round(mean(row["mean_iou"] for row in own), 3), nll, own[0]["n_images"] < most
    best_iou = max((iou for iou, _, few in found.values() if not few), default=None)
    best_nll = min((nll for _, nll, few in found.values() if nll is not None and not few), default=None)
    return {
        name: f"{_number(iou, iou == best_iou and not few)} / {_number(nll, nll == best_nll and not few)}{'*' * few}"
        for name, (iou, nll, few) in found.items()
    }


def speed(record: dict[str, Any]) -> Iterable[str]:
    """Yield the table of seconds and accuracy of every system on the benchmark's tasks."""
    machine = record["machine"]
    yield (
        f"Seconds / fraction of correct pixels, medians, from `{BENCHMARK}` ({record['date']}, {machine['cpu']},"
        f" {machine['cores']} cores; `make bench` measures it again). Runs of all libraries alternated."
        " pydensecrf2 solves another model, in which all pixels are neighbours, and is more accurate on T2 to T4:"
    )
    results = record["results"]
    names = list(dict.fromkeys(name for task in TASKS for name in results[task]))
    rows = [[f"`{name}`", *(_timed(results[task].get(name)) for task in TASKS)] for name in names]
    yield table(["", *(f"{task}: {what}" for task, what in TASKS.items())], rows)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with numbers aligned to the right."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _timed(row: dict[str, Any] | None) -> str:
    return (
        "–"
        if row is None or "seconds" not in row
        else f"{row['seconds']:.2g} / {row['accuracy']:.3f}".replace(" 0.", " .")
    )


def _number(value: float | None, best: bool) -> str:
    if value is None:
        return "–"
    text = f"{value:.3f}".removeprefix("0")
    return f"**{text}**" if best else text


def _seeds(runs: dict[str, dict[str, Any]]) -> int:
    return min(len(run["protocol"]["seeds"]) for run in runs.values())


def _read(path: str) -> dict[str, Any]:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
