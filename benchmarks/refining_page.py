"""Tables of docs/refining.md from the record of `benchmarks.refining measure`.

Each table of the page is between ``<!-- table: NAME -->`` and ``<!-- end -->``; the rest of the page is not changed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from locpmap.refining.weights import Weights

BASE = "network, temperature scaled"
COMPONENTS = "components per label map"
LESS_IS_BETTER = ("ECE", "NLL", COMPONENTS)
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
AREAS = {"coverage": "coverage", "absent": "coverage, absent labels", "width": "width", "crps": "CRPS"}


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with its marked tables replaced; every table must have a marker, and every marker a table."""
    places = [name for _, name, _ in MARKED.findall(page)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"the page has places for {sorted(places)}, expected {sorted(tables)}")
    return MARKED.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", page)


def tables_of(record: Mapping[str, Any], weights: Weights) -> dict[str, str]:
    """Return the tables by name, from the record and the bundled weights."""
    speed = record["speed"]
    return {
        "weights": _weights(weights),
        **{f"stride-{stride}": _scores(table["rows"]) for stride, table in record["strides"].items()},
        "speed": table(
            ("", "seconds", "processor seconds"),
            ((name, f"{row['seconds']:.2f}", f"{row['cpu_seconds']:.2f}") for name, row in speed["medians"].items()),
        ),
        "areas": table(
            ("", "stride", *AREAS.values()),
            ((name, s, *_numbers(row, AREAS)) for s, rows in record["areas"].items() for name, row in rows.items()),
        ),
        "origin": table(
            ("command", "date"),
            (
                (f"`{origin['command']}`", origin["date"])
                for origin in (record, record.get("areas_origin"), speed.get("origin"))
                if origin
            ),
        ),
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


def _numbers(row: Mapping[str, float], names: Iterable[str]) -> list[str]:
    return [f"{row[name]:.3f}" for name in names]


def _weights(weights: Weights) -> str:
    heads = ("stride", "scale", "own", "similar", "coupling", "errors", "noise", "votes", "odds of presence")
    couplings = weights.pairwise.sum(axis=-1).max(axis=1)
    rows = []
    for n, (half, steepness) in enumerate(weights.presence):
        numbers = (weights.scales[n], weights.own[n], weights.guided[n], couplings[n])
        errors = " ".join(f"{size:.2f}" for size in (*weights.sizes[n], weights.shared[n]))
        samples = (errors, f"{weights.noise[n]:.3f}", f"{weights.votes[n]:.3f}")
        presence = f"(share / {half:.3g})^{steepness:.2f}" if half > 0 else "always"
        rows.append((f"{weights.strides[n]:g}", *(f"{value:.3f}" for value in numbers), *samples, presence))
    return table(heads, rows)


def _scores(rows: Mapping[str, Any]) -> str:
    measures = list(next(iter(rows.values())))
    return table(("", *measures), ((name, *(_cell(name, m, row[m]) for m in measures)) for name, row in rows.items()))


def _cell(name: str, measure: str, found: Mapping[str, float]) -> str:
    digits = 1 if measure == COMPONENTS else 4
    value = f"{found['value']:.{digits}f}"
    if name == BASE:
        return value
    gain, error = found["gain"], found["standard_error"]
    sure = abs(gain) > max(2 * error, 0.5 * 10**-digits)  # significant and not rounded to 0
    good = (gain > 0) != (measure in LESS_IS_BETTER)
    text = f"{value} ({gain:+.{digits}f} ± {error:.{digits}f})"
    return f"**{text}**" if sure and good else f"{text} †" if sure else text
