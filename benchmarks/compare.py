"""Compare benchmark records with those of the last commit: ``python -m benchmarks.compare [FILE ..]``.

Times are compared if both records come from the same kind of machine. Otherwise only the ratios to other systems are
compared, which depend less on the machine. The exit status is 1 if a number increased by more than the limit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
TIMES = {"seconds", "cpu_seconds", "milliseconds", "in_a_row", "wall"}
RATIOS = {"ratios", "ratio"}


def numbers(record: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the path and value of every time and ratio of a record."""
    if isinstance(record, dict):
        for key, value in record.items():
            yield from numbers(value, (*path, key))
    elif isinstance(record, list):
        for place, value in enumerate(record):
            yield from numbers(value, (*path, str(place)))
    elif isinstance(record, (int, float)) and not isinstance(record, bool) and (TIMES | RATIOS) & set(path[-2:]):
        yield path, float(record)


def changes(old: Any, new: Any) -> dict[str, tuple[float, float]]:
    """Return the old and new value of the numbers that both records contain, by name."""
    same_machine = all(_machine(old, key) == _machine(new, key) for key in ("cpu", "cores", "gpu"))
    before, after = dict(numbers(old)), dict(numbers(new))
    common = [path for path in after if path in before and before[path] > 0]
    return {" / ".join(path): (before[path], after[path]) for path in common if same_machine or RATIOS & set(path[-2:])}


def _machine(record: Any, key: str) -> Any:
    return record.get("machine", {}).get(key)


def committed(file: Path) -> Any:
    """Return the record of the last commit, or None if the commit has none."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{file.name}"], cwd=file.parent, capture_output=True, text=True, check=False
    )
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def main(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Records; all under benchmarks/results by default.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Report numbers that changed by more than this factor.")] = 1.1,
) -> None:
    """Print the numbers that changed by more than the limit since the last commit."""
    console, slower = Console(), False
    for file in files or sorted(RESULTS.glob("*.json")):
        old = committed(file)
        found = {} if old is None else changes(old, json.loads(file.read_text()))
        moved = {name: pair for name, pair in found.items() if not 1 / limit <= pair[1] / pair[0] <= limit}
        slower |= any(new > old for old, new in moved.values())
        console.print(f"{file.name}: {len(found)} numbers compared, {len(moved)} changed by more than {limit:g} times")
        if moved:
            table = Table("number", "before", "now", "now ÷ before")
            for name, (before, now) in sorted(moved.items(), key=lambda item: -item[1][1] / item[1][0]):
                table.add_row(name, f"{before:.4g}", f"{now:.4g}", f"{now / before:.2f}")
            console.print(table)
    raise typer.Exit(int(slower))


if __name__ == "__main__":
    typer.run(main)
