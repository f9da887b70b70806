"""Numbers in the README agree with the recorded runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locpmap_paper.experiments import paper

ROOT = Path(__file__).parents[2]
COLUMNS = [(name, level) for name in ("mnist", "caltech") for level in ("variance", "amplitude")]


def record(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "results" / name / "result.json").read_bytes())
    return loaded


def over_seeds(name: str, level: str, model: str, what: str = "mean_iou") -> dict[str, Any]:
    """Return a measure by decoder, as an array over seeds."""
    found: dict[str, list[float]] = {}
    for row in record(name)["rows"]:
        if (row["level"], row["model"]) == (level, model) and row[what] is not None:
            found.setdefault(row["decoder"], []).append(row[what])
    assert all(len(values) == 3 for values in found.values())
    return {decoder: np.array(values) for decoder, values in found.items()}


def readme_row(begins: str) -> list[list[str]]:
    """Return the numbers in the cells of a row of the README's table."""
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {begins}"))
    return [re.findall(r"\d*\.\d+", cell) for cell in line.split("|")[2:-1]]


def shown(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def test_readme_table_of_experiments() -> None:
    columns: list[list[list[str]]] = [[] for _ in range(5)]
    as_in_the_paper, tuned, others, network, joint = columns
    for name, level in COLUMNS:
        means = [
            {decoder: values.mean() for decoder, values in over_seeds(name, level, model).items()}
            for model in ("raw-pl", "deep-pl")
        ]
        as_in_the_paper.append([shown(mean["locpmap"], 3) for mean in means])
        tuned.append([shown(mean["locpmap-tuned"], 3) for mean in means])
        rivals = [max(v for d, v in mean.items() if not d.startswith("locpmap") and d != "argmax") for mean in means]
        others.append([shown(rival, 3) for rival in rivals])
        network.append([shown(over_seeds(name, level, "ce-fresh")["argmax"].mean(), 4)])
        far = over_seeds(name, level, "deep-consistent-far")
        joint.append([shown(far["locpmap-conditional"].mean(), 4)])
    assert readme_row("LocPMAP as in the paper") == as_in_the_paper
    assert readme_row("pseudolikelihood: LocPMAP, tuned") == tuned
    assert readme_row("the best other decoder") == others
    assert readme_row("cross-entropy network") == network
    assert readme_row("network and CRF learned together") == joint


@pytest.mark.parametrize(("begins", "stride"), [("sharp logits", "1"), ("stride 16", "16")])
def test_readme_table_of_refining(begins: str, stride: str) -> None:
    rows = json.loads((ROOT / "benchmarks/results/refining.json").read_text())["strides"][stride]["rows"]
    components = "components per label map"
    columns = ("IoU", "IoU within 3 pixels of boundaries", "NLL", components)

    def cells(*systems: str) -> list[list[str]]:
        """Return gain and standard error per system as the README prints them; nothing for unchanged values."""
        found = []
        for column in columns:
            numbers = [(rows[system][column]["gain"], rows[system][column]["standard_error"]) for system in systems]
            kept = [(abs(gain), error) for gain, error in numbers if error > 1e-6]
            digits = [2 if gain > 0.5 else 4 if error < 5e-4 else 3 for gain, error in kept]
            digits = [1] * len(kept) if column == components else digits
            found.append([shown(value, n) for pair, n in zip(kept, digits, strict=True) for value in pair])
        return found

    assert readme_row(f"{begins}: `lp.refine`") == cells("lp.refine")
    assert readme_row(f"{begins}: pydensecrf2") == cells("pydensecrf2, usual settings", "pydensecrf2, tuned")


def test_readme_table_of_areas() -> None:
    record = json.loads((ROOT / "benchmarks/results/refining.json").read_text())
    methods = ("independent pixels", "Refiner.measure")

    def row(begins: str) -> list[list[str]]:
        line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {begins}"))
        return [re.findall(r"(\d+) %", cell) for cell in line.split("|")[2:-1]]

    scenes = record["areas"]["1"]
    covered = [[f"{100 * scenes[name][key]:.0f}" for key in ("coverage", "absent")] for name in methods]
    assert row(f"{record['scenes']['areas']} unseen scenes") == covered


@pytest.mark.parametrize(("name", "level"), COLUMNS)
def test_claims_of_the_readme_text(name: str, level: str) -> None:
    for model in ("raw-pl", "deep-pl"):
        means = {decoder: values.mean() for decoder, values in over_seeds(name, level, model).items()}
        assert max(means, key=lambda decoder: means[decoder]) == "locpmap-tuned"
    for what, sign in (("mean_iou", 1), ("nll", -1)):
        mine = over_seeds(name, level, "deep-consistent-far", what)["locpmap-conditional"]
        gain = sign * (mine - over_seeds(name, level, "ce-fresh", what)["argmax"])
        assert gain.mean() > 10 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_readme_row_of_the_paper() -> None:
    cells = readme_row("paper's LocPMAP")
    for numbers, table in zip(cells, [paper.MNIST] * 2 + [paper.SILHOUETTES] * 2, strict=True):
        assert len(numbers) == 2
        assert all(number in json.dumps(table) for number in numbers)
