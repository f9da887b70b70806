"""Measurements of a run, printed as tables and written as JSON records."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.rows import BY_NAME
from benchmarks.targets import MB, Measurement, Verdict


def print_task(console: Console, task: str, rows: Mapping[str, Measurement]) -> None:
    """Print the table of a task: time, memory and accuracy of every system."""
    table = RichTable(title=task, title_justify="left")
    table.add_column("system")
    table.add_column("settings")
    for heading in ("seconds", "cpu s", "peak MB", "accuracy"):
        table.add_column(heading, justify="right")
    table.add_column("time ÷ that of")
    for name, row in rows.items():
        ratios = ", ".join(f"{ratio:.2f} {peer}" for peer, ratio in ratios_of(name, rows).items())
        times = (f"{row.seconds:.3f}", f"{row.cpu_seconds:.3f}")
        table.add_row(name, BY_NAME[name].what, *times, f"{row.peak_bytes / MB:.0f}", f"{row.accuracy:.4f}", ratios)
    console.print(table)


def ratios_of(name: str, rows: Mapping[str, Measurement]) -> dict[str, float]:
    """Return our seconds divided by those of each other system that ran."""
    return {peer: rows[name].seconds / rows[peer].seconds for peer in BY_NAME[name].versus if peer in rows}


def print_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    """Print the targets: met, missed or not measured."""
    table = RichTable(title="targets", title_justify="left")
    table.add_column("target")
    for heading in ("at most", "measured", ""):
        table.add_column(heading, justify="right")
    words = {True: "[green]met[/]", False: "[red]missed[/]", None: "not measured"}
    for verdict in verdicts:
        measured = "" if verdict.measured is None else f"{verdict.measured:.3g}"
        table.add_row(verdict.target, f"{verdict.limit:.3g}", measured, words[verdict.met])
    console.print(table)


def write_json(
    path: Path,
    provenance: Mapping[str, Any],
    results: Mapping[str, Mapping[str, Measurement]],
    verdicts: list[Verdict],
    left_out: Mapping[str, str],
) -> None:
    """Write measurements, verdicts and their provenance."""
    measured = {
        task: {name: asdict(row) | {"ratios": ratios_of(name, rows)} for name, row in rows.items()}
        for task, rows in results.items()
    }
    write_record(path, {**provenance, "left_out": dict(left_out), "results": measured}, verdicts)


def write_record(path: Path, contents: Mapping[str, Any], verdicts: list[Verdict]) -> None:
    """Write a result file with the given contents and the verdicts on targets."""
    record = {**contents, "targets": [asdict(verdict) | {"met": verdict.met} for verdict in verdicts]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(record), indent=1, ensure_ascii=False) + "\n")


def join_record(path: Path, dataset: str, entry: Mapping[str, Any]) -> None:
    """Add the entry of a data set to a result file, or replace it."""
    whole = json.loads(path.read_text()) if path.exists() else {}
    whole.pop("targets", None)
    write_record(path, {**whole, dataset: entry}, [])


def _rounded(value: Any) -> Any:
    """Round floats to four significant digits, the precision of the measurements."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
