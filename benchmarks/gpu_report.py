"""Tables that `python -m benchmarks.gpu` prints."""

from typing import Any

from rich.console import Console
from rich.table import Table


def print_task(console: Console, label: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print the table of a task."""
    table = Table("system", title=label, title_justify="left")
    for heading in ("ms", "min", "max", "wall ms", "MB", "sweeps", "accuracy"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        if "refused" in row:
            continue
        cells = (row["milliseconds"], *row["spread"], row["wall"], row["megabytes"])
        sweeps = f"{row['n_sweeps']:.3g}" if "n_sweeps" in row else ""
        table.add_row(name, *(f"{cell:.3g}" for cell in cells), sweeps, f"{row['accuracy']:.4f}")
    console.print(table)
    _print_left_out(console, rows)


def print_learning(console: Console, rows: dict[str, dict[str, Any]]) -> None:
    """Print the table of gradients."""
    table = Table("pseudolikelihood's gradient", title="learning", title_justify="left")
    for heading in ("ms", "wall ms", "MB read", "GB/s", "÷ copy", "÷ full speed"):
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        if "refused" in row:
            continue
        keys = ("milliseconds", "wall", "megabytes_moved", "gb_per_s", "times_a_copy", "times_full_speed")
        cells = [row[key] for key in keys]
        table.add_row(name, *(f"{cell:.3g}" for cell in cells))
    console.print(table)
    _print_left_out(console, rows)


def _print_left_out(console: Console, rows: dict[str, dict[str, Any]]) -> None:
    for name, row in rows.items():
        if "refused" in row:
            console.print(f"skipped: {name} ({row['refused']})")


def print_floors(console: Console, results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print the lower bounds (floors) and the measured times."""
    table = Table("locpmap, ms", title="floors", title_justify="left")
    for heading in ("memory", "Philox", "labels", "kernels", "total", "kernels ÷ floor", "longest kernels"):
        table.add_column(heading, justify="right")
    for label, rows in results.items():
        row = rows.get("locpmap", {})
        if "kernels" not in row:
            continue
        floor, busy = row["floor"], sum(row["kernels"].values())
        longest = ", ".join(f"{name[:24]} {ms:.3g}" for name, ms in list(row["kernels"].items())[:3])
        cells = (floor["memory"], floor["philox"], floor["labels"], busy, row["milliseconds"])
        table.add_row(label, *(f"{cell:.3g}" for cell in cells), f"{busy / floor['milliseconds']:.1f}", longest)
    console.print(table)
