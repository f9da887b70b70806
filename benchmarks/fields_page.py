"""Tables of docs/whole-maps.md, written by ``python -m benchmarks.fields_page``.

They come from the records of `benchmarks.fields` and `benchmarks.annotators`. The markers of tables are those of
`benchmarks.refining_page`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.refining_page import filled, origins, table
from locpmap.learning.proper_scores import PERIMETER, WINDOWS, name_of
from locpmap.refining.map_scores import COMPONENTS
from locpmap.refining.weights import Weights

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/fields.json", ROOT / "docs/whole-maps.md"
ANNOTATORS = ROOT / "benchmarks/results/annotators.json"
AREAS = tuple(map(name_of, WINDOWS))
NAMES = (*AREAS, COMPONENTS, PERIMETER)
HEADS = tuple(name.removeprefix("area ") for name in NAMES)


def fitted_weights(dataset: str) -> Weights:
    """Return the weights that `benchmarks.fields` learned on held-out images."""
    learned = json.loads(RECORD.read_text())[dataset]["learned"]
    return Weights(**{name: np.asarray(value) for name, value in learned.items()})


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: scores of samples and of probabilities, for every data set, and of annotators."""
    sets = {name: one for name, one in record.items() if name != "targets"}
    tables = {name: _samples(one["rows"]) for name, one in sets.items()}
    tables["probabilities"] = table(
        ("", "", "IoU", "ECE", "NLL"),
        (
            (name, kind, *(f"{gain:+.4f} ± {error:.4f}" for gain, error in gains.values()))
            for name, one in sets.items()
            for kind, gains in one["pixels"].items()
        ),
    )
    annotated = {name: one for name, one in json.loads(ANNOTATORS.read_text()).items() if name != "targets"}
    tables["annotators"] = _annotators(annotated)
    tables["origin"] = origins(sets | annotated)
    return tables


def _annotators(sets: Mapping[str, Any]) -> str:
    heads = ("", "", "distance", "diversity", "coverage of areas", "coverage of perimeters")
    return table(
        heads,
        (
            (name, kind, *(f"{row[key]:.3f}" for key in heads[2:4]), *(f"{row[key]:.0%}" for key in heads[4:]))
            for name, one in sets.items()
            for kind, row in one["rows"].items()
        ),
    )


def _samples(rows: Mapping[str, Any]) -> str:
    """Return two tables, since one would be wider than a page."""
    coverage = table(
        ("coverage", *HEADS),
        (
            (kind, *(_cell("{:.2f} / {:.2f}", name, row["coverage"], row["ranks"]) for name in NAMES))
            for kind, row in rows.items()
        ),
    )
    scores = table(
        ("", *(f"CRPS {head}" for head in HEADS[: len(AREAS)]), "energy", "labels"),
        (
            (
                kind,
                *(_cell("{:.4f}", name, row["crps"]) for name in AREAS),
                f"{row['energy']:.3f}",
                f"{row['labels per sample']:.1f}",
            )
            for kind, row in rows.items()
        ),
    )
    return f"{coverage}\n\n{scores}"


def _cell(text: str, name: str, *values: Mapping[str, float]) -> str:
    return text.format(*(each[name] for each in values)) if name in values[0] else ""


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables_of(json.loads(RECORD.read_text()))))
