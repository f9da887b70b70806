"""Printed summary of ``locpmap refine``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locpmap.cli.refine_deciding import count_of, decided_sentence
from locpmap.cli.refine_outputs import INTERVAL

Record = dict[str, Any]
N_LARGEST = 3  # labels per input in the table of several inputs
ENOUGH = 20  # samples for an interval
LEAST = 0.0005  # smallest fraction that is not printed as 0.0%
WIDE = "intervals from error fields of images, often too wide for volumes: fit your own with `locpmap fit-refiner`"


def summary(done: Sequence[Record], output: Path) -> str:
    """Return a table of the labels of one input, or of several inputs, and what was written."""
    n_files = sum(len(record["files"]) for record in done)
    skipped = sum(record["state"] == "skipped" for record in done)
    notes = [f"{n_files} files in {output}", f"finished before: {skipped}" if skipped else ""]
    if len(done) == 1:
        lines = [*_areas(done[0]), done[0]["changes"]]
        notes.insert(0, f"mean entropy {done[0]['mean_entropy']:.3f}, {done[0]['seconds']:.2f} s")
    else:
        lines = _inputs(done)
    if any(record["spacing"] and record["learned_on"] == "images" and not record["guaranteed"] for record in done):
        lines.append(WIDE)
    if decided := [record for record in done if "decision" in record]:
        lines.append(decided_sentence(decided))
    return "\n".join([*lines, "; ".join(note for note in notes if note)])


def _areas(record: Record) -> list[str]:
    """Return a table of the labels that are present, and the number of the others."""
    present, rows = _present(record), []
    size, digits = ("pixels", ".0f") if record["spacing"] is None else ("volume", ".1f")
    for row in present:
        low, high = row["interval"]
        sizes = f"{row[size]:{digits}}", f"{row['median']:{digits}}", f"{low:.0f} to {high:.0f}"
        rows.append((_title(row), *sizes, f"{count_of(row) / max(1, count_of(record)):.1%}"))
    interval = f"{INTERVAL:.0%} interval" + (", guaranteed" if record["guaranteed"] else "")
    unit = "pixels" if record["spacing"] is None else "volume in mm³"
    lines = _table(("label", unit, "median of samples", interval, "fraction"), rows)
    if record["settings"]["n_samples"] < ENOUGH:
        lines.append(f"intervals of fewer than {ENOUGH} samples are unreliable")
    elif any(not row["interval"][0] <= row[size] <= row["interval"][1] for row in present):
        lines.append("the median and the interval are of the samples, not of the label map")
    if n_absent := record["n_labels"] - len(present):
        lines.append("1 label absent" if n_absent == 1 else f"{n_absent} labels absent")
    return lines


def _inputs(done: Sequence[Record]) -> list[str]:
    """Return a table with one line per input."""
    rows = []
    for record in done:
        present = _present(record)
        largest = ", ".join(_largest(row, record) for row in present[:N_LARGEST])
        numbers = str(len(present)), str(record["changed"]), f"{record['mean_entropy']:.3f}", f"{record['seconds']:.2f}"
        rows.append((record["name"], *numbers, record["state"], largest))
    content = "largest labels" if done[0]["spacing"] is None else f"largest labels in mm³ ({INTERVAL:.0%} interval)"
    lines = _table(("input", "labels", "changed", "mean entropy", "seconds", "", content), rows, left=(0, 6))
    if unchanged := [record for record in done if not record["changed"]]:
        lines.append(f"{unchanged[0]['name']}: {unchanged[0]['changes']}")
    return lines


def _largest(row: Record, record: Record) -> str:
    """Return the part of a label in its image, or its volume and the interval of the samples."""
    if record["spacing"] is None:
        return f"{_title(row)} {count_of(row) / max(1, count_of(record)):.0%}"
    low, high = row["interval"]
    return f"{_title(row)}: {row['volume']:.0f} ({low:.0f} to {high:.0f})"


def _present(record: Record) -> list[Record]:
    """Return the labels by number of pixels, without those that have none and a mean area that is printed as 0.0%."""
    total = max(1, count_of(record)) * math.prod(record["spacing"] or ())
    means = [(row, float(row["area"] if "area" in row else row["mean_volume"])) for row in record["labels"]]
    present = [row for row, mean in means if count_of(row) or mean / total >= LEAST]
    return sorted(present, key=count_of, reverse=True)


def _title(row: Record) -> str:
    return str(row["label"]) if row["name"] is None else f"{row['label']} {row['name']}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table whose columns are aligned on the left or on the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    aligned = ["<" if column in left else ">" for column in range(len(header))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)).rstrip()
        for line in lines
    ]
