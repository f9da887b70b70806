"""Numbers in paper/README.md agree with the recorded runs."""

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
    """Return the numbers in the cells of a row of the table in paper/README.md."""
    line = next(line for line in (ROOT / "paper/README.md").read_text().splitlines() if line.startswith(f"| {begins}"))
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
