"""Printed summary of ``locpmap refine``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locpmap.cli.refine_deciding import decided_sentence
from locpmap.cli.refine_outputs import INTERVAL

Record = dict[str, Any]
N_LARGEST = 3  # labels per input in the table of several inputs
LEAST = 0.0005  # smallest fraction that is not printed as 0.0%


def summary(done: Sequence[Record], output: Path) -> str:
    """Return a table of the labels of one input, or of several inputs, and what was written."""
    n_files = sum(len(record["files"]) for record in done)
    skipped = sum(record["state"] == "skipped" for record in done)
    notes = [f"{n_files} files in {output}", f"finished before: {skipped}" if skipped else ""]
    if len(done) == 1:
        lines = _areas(done[0])
        notes.insert(0, f"mean entropy {done[0]['mean_entropy']:.3f}, {done[0]['seconds']:.2f} s")
    else:
        lines = _inputs(done)
    if decided := [record for record in done if "decision" in record]:
        lines.append(decided_sentence(decided))
    return "\n".join([*lines, "; ".join(note for note in notes if note)])


def _areas(record: Record) -> list[str]:
    """Return a table of the labels that are present, and the number of the others."""
    present, rows = _present(record), []
    for row in present:
        low, high = row["interval"]
        spread = "" if row["std"] is None else f"{row['std']:.1f}"
        interval, fraction = f"{low:.0f} to {high:.0f}", f"{_share(row, record):.1%}"
        rows.append((_title(row), str(row["pixels"]), f"{_size(row):.1f}", spread, interval, fraction))
    interval = f"{INTERVAL:.0%} interval" + (", guaranteed" if record["guaranteed"] else "")
    counted = ("pixels", "area") if record.get("spacing") is None else ("voxels", "volume in mm³")
    lines = _table(("label", *counted, "± std", interval, "fraction"), rows)
    if n_absent := record["n_labels"] - len(present):
        lines.append("1 label absent" if n_absent == 1 else f"{n_absent} labels absent")
    return lines


def _inputs(done: Sequence[Record]) -> list[str]:
    """Return a table with one line per input."""
    rows = []
    for record in done:
        present = _present(record)
        shares = [(_title(row), _share(row, record)) for row in present[:N_LARGEST]]
        largest = ", ".join(f"{title} {share:.0%}" for title, share in shares)
        numbers = str(len(present)), f"{record['mean_entropy']:.3f}", f"{record['seconds']:.2f}"
        rows.append((record["name"], *numbers, record["state"], largest))
    return _table(("input", "labels", "mean entropy", "seconds", "", "largest labels"), rows, left=(0, 5))


def _present(record: Record) -> list[Record]:
    """Return the labels, largest first, without those that have no pixel and a mean area that is printed as 0.0%."""
    return [row for row in record["labels"] if row["pixels"] or _share(row, record) >= LEAST]


def _size(row: Record) -> float:
    """Return the mean area of a label in pixels, or its mean volume in mm³."""
    return float(row["area"] if "area" in row else row["volume"])


def _share(row: Record, record: Record) -> float:
    """Return the part of a label in its image or volume."""
    return _size(row) / (max(1, record["pixels"]) * math.prod(record.get("spacing") or ()))


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
