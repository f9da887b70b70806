"""The tables and bar charts of docs/arena.md, from the record of `benchmarks.arena`."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.arena.cells import SHIFTED, Cell
from benchmarks.arena.measuring import (
    BOUNDARY_IOU,
    COMPONENTS,
    ECE,
    HIGHER,
    IOU,
    MEASURES,
    NLL,
    PER_IMAGE,
    Row,
    verdict,
)
from benchmarks.arena.methods import METHODS, NETWORK, OURS, SCALED
from benchmarks.refining_page import filled, table

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "benchmarks/results/arena.json", ROOT / "docs/arena.md"
FIGURE = ROOT / "docs/figures/arena.png"
JUDGED = (IOU, BOUNDARY_IOU, PER_IMAGE, NLL, ECE)
CHARTS = (NLL, ECE, IOU, BOUNDARY_IOU)


def entry_of(cell: Cell, rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return the record of a cell: values, and differences from the network and from the scaled network."""
    found: dict[str, Any] = {}
    for name, row in rows.items():
        found[name] = {
            "values": {measure: row.value(measure) for measure in MEASURES},
            "gains": {measure: row.gain(rows[NETWORK], measure) for measure in MEASURES},
            "gains_on_scaled": {measure: row.gain(rows[SCALED], measure) for measure in MEASURES},
            "seconds": row.seconds,
            "fit_seconds": row.fit_seconds,
            "peak_bytes": row.peak_bytes,
        }
    return {**cell._asdict(), "images": len(rows[NETWORK].per_image), "methods": found}


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: verdicts against the network and the scaled network, and one table per measure."""
    cells = record["cells"]
    tables = {
        "verdicts": _verdicts(cells, "gains"),
        "verdicts-scaled": _verdicts(cells, "gains_on_scaled"),
        SHIFTED: _verdicts(record[SHIFTED], "gains_on_scaled"),
        "first": _first(cells),
        "cost": _cost(cells),
        "origin": _origins(cells),
    }
    for measure in MEASURES:
        tables[measure.lower().replace(" ", "-")] = _values(cells, measure)
    return tables


def _origins(cells: Mapping[str, Any]) -> str:
    runs = Counter((f"`{cell['origin']['command']}`", cell["origin"]["date"]) for cell in cells.values())
    return table(("combinations", "command", "date"), ((str(n), *run) for run, n in runs.items()))


def counts(cells: Mapping[str, Any], name: str, measure: str, versus: str = "gains") -> tuple[int, int, int]:
    """Return in how many cells a method is better, equal and worse, at two standard errors."""
    gains = [cell["methods"][name][versus][measure] for cell in cells.values()]
    found = [verdict(gain, error, measure) for gain, error in gains]
    return found.count(1), found.count(0), found.count(-1)


def _methods(cells: Mapping[str, Any]) -> list[str]:
    """Return the methods that were measured on all networks."""
    return [name for name in METHODS if all(name in cell["methods"] for cell in cells.values())]


def _verdicts(cells: Mapping[str, Any], versus: str) -> str:
    base = NETWORK if versus == "gains" else SCALED
    return table(
        ("method", *JUDGED),
        (
            (name, *(" / ".join(map(str, counts(cells, name, measure, versus))) for measure in JUDGED))
            for name in _methods(cells)
            if name not in (NETWORK, base)
        ),
    )


def first_in(cells: Mapping[str, Any], measure: str) -> dict[str, int]:
    """Return in how many cells each method has the best value; ties count for all, and ours count once."""
    found: Counter[str] = Counter()
    for cell in cells.values():
        values = {name: cell["methods"][name]["values"][measure] for name in _methods(cells)}
        best = (max if measure in HIGHER else min)(values.values())
        found.update({"ours" if name in OURS else name for name, value in values.items() if value == best})
    return found


def _first(cells: Mapping[str, Any]) -> str:
    wins = {measure: first_in(cells, measure) for measure in JUDGED}
    names = [name for name in ("ours", *METHODS) if any(name in found for found in wins.values())]
    return table(("method", *JUDGED), ((name, *(str(wins[m].get(name, 0)) for m in JUDGED)) for name in names))


def _values(cells: Mapping[str, Any], measure: str) -> str:
    names = _methods(cells)
    return table(
        ("combination", *names),
        ((_title(cell), *(_cell(cell["methods"][name], name, measure) for name in names)) for cell in cells.values()),
    )


def _title(cell: Mapping[str, Any]) -> str:
    return f"{cell['dataset']}, {cell['network']}, stride {cell['stride']} ({cell['images']})"


def _cell(row: Mapping[str, Any], name: str, measure: str) -> str:
    digits = 1 if measure == COMPONENTS else 4
    if name == NETWORK:
        return f"{row['values'][measure]:.{digits}f}"
    gain, error = row["gains"][measure]
    text, found = f"{gain:+.{digits}f} ± {error:.{digits}f}", verdict(gain, error, measure)
    return f"**{text}**" if found > 0 else f"{text} †" if found < 0 else text


def _cost(cells: Mapping[str, Any]) -> str:
    def median(name: str, key: str) -> float:
        values = sorted(cell["methods"][name][key] for cell in cells.values())
        return float(values[len(values) // 2])

    return table(
        ("method", "ms per image", "s to fit or tune", "peak memory in MB"),
        (
            (
                name,
                f"{1000 * median(name, 'seconds'):.0f}",
                f"{median(name, 'fit_seconds'):.1f}",
                f"{median(name, 'peak_bytes') / 1e6:.0f}",
            )
            for name in _methods(cells)
        ),
    )


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw how many networks every method makes better and worse."""
    import matplotlib.pyplot as plt

    cells = record["cells"]
    names = [name for name in _methods(cells) if name != NETWORK][::-1]
    figure, axes = plt.subplots(1, len(CHARTS), figsize=(11, 4.2), sharey=True, layout="constrained")
    for axis, measure in zip(axes, CHARTS, strict=True):
        found = [counts(cells, name, measure) for name in names]
        axis.barh(names, [better for better, _, _ in found], color="#2a7f62")
        axis.barh(names, [-worse for _, _, worse in found], color="#c44536")
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_title(measure)
        axis.set_xlim(-len(cells), len(cells))
        axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
        for label in axis.get_yticklabels():
            label.set_fontweight("bold" if label.get_text() in OURS else "normal")
    figure.supxlabel(f"number of networks (of {len(cells)}): worse to the left, better to the right", fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write_page(record: Mapping[str, Any], page: Path) -> None:
    """Replace the tables of the page, and draw its figure."""
    page.write_text(filled(page.read_text(), tables_of(record)))
    draw(record, FIGURE)
