"""Tables of docs/refining.md from the record of `benchmarks.refining` and the bundled weights.

Each table of the page is between ``<!-- table: NAME -->`` and ``<!-- end -->``; the rest of the page is not changed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from locpmap.refining.weights import Weights

MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with its marked tables replaced; every table must have a marker, and every marker a table."""
    places = [name for _, name, _ in MARKED.findall(page)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for {sorted(places)}, expected {sorted(tables)}")
    return MARKED.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", page)


def tables_of(record: Mapping[str, Any], weights: Weights) -> dict[str, str]:
    """Return the tables by name, from the record and the bundled weights."""
    speed, origin = record["speed"], record["origin"]
    return {
        "weights": _weights(weights),
        "speed": table(
            ("", "seconds", "processor seconds"),
            ((name, f"{row['seconds']:.2f}", f"{row['cpu_seconds']:.2f}") for name, row in speed["medians"].items()),
        ),
        "origin": table(("command", "date"), [(f"`{origin['command']}`", origin["date"])]),
    }


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    heads = tuple(heads)
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0].replace("|  |", "| |", 1), "|---" * len(heads) + "|", *lines[1:]])


def origins(sets: Mapping[str, Any], *columns: str) -> str:
    """Return the table of commands and dates of data sets, after columns of their entries (images by default)."""
    columns = columns or ("images",)
    return table(
        ("data", *columns, "command", "date"),
        (
            (name, *(str(one[key]) for key in columns), f"`{one['origin']['command']}`", one["origin"]["date"])
            for name, one in sets.items()
        ),
    )


def _weights(weights: Weights) -> str:
    heads = ("stride", "own", "similar", "threshold", "removed", "coupling", "errors", "noise", "odds of presence")
    couplings = weights.pairwise.sum(axis=-1).max(axis=1)
    rows = []
    for n, (half, steepness) in enumerate(weights.presence):
        numbers = (weights.own[n], weights.guided[n], *weights.adaptation[n])
        errors = " ".join(f"{size:.2f}" for size in (*weights.sizes[n], weights.shared[n]))
        samples = (f"{couplings[n]:.1f}", errors, f"{weights.noise[n]:.3f}")
        presence = f"(share / {half:.3g})^{steepness:.2f}" if half > 0 else "always"
        rows.append((f"{weights.strides[n]:g}", *(f"{value:.2f}" for value in numbers), *samples, presence))
    return table(heads, rows)
