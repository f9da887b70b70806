"""Table and figure of docs/samplers.md from the record, written by ``python -m benchmarks.samplers page``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.refining_page import filled, table

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "benchmarks/results/samplers.json", ROOT / "docs/samplers.md"
FIGURE = ROOT / "docs/figures/samplers.png"
TARGET = 0.05
FAMILIES = (("LocPMAP", "tab:red"), ("Gibbs,", "tab:blue"), ("Swendsen", "tab:green"), ("", "tab:gray"))
STYLES = ("-", "--", ":", "-.")
MARKERS = "osd^vPX*"


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of errors at the largest budget, and of the origins."""
    parts = [record[name]["origin"] for name in ("random", "learned")]
    return {
        "errors": _errors(record["random"]["cases"]),
        "learned": _errors(record["learned"]["cases"]),
        "origin": table(
            ("command", "machine", "load", "date"),
            (
                (
                    f"`{origin['command']}`",
                    f"{origin['machine']['cpu']}, {origin['machine']['cores']} cores",
                    str(origin["machine"]["load"]),
                    origin["date"],
                )
                for origin in parts
            ),
        ),
    }


def _errors(cases: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for one in cases.values() for name in one["samplers"]))
    return table(
        ("mean absolute error after", *(f"{case}: {one['budgets'][-1]:g} s" for case, one in cases.items())),
        ((name, *(_cell(one["samplers"].get(name)) for one in cases.values())) for name in names),
    )


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or row["error"][-1] is None:
        return "–"
    text = f"{row['error'][-1]:.4f}".removeprefix("0")
    return text + ("*" if row["not_mixed"][-1] else "")


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw errors against seconds, one panel per model."""
    import matplotlib.pyplot as plt

    cases = record["random"]["cases"] | record["learned"]["cases"]
    names = list(dict.fromkeys(name for one in cases.values() for name in one["samplers"]))
    looks: dict[str, dict[str, Any]] = {}
    used = dict.fromkeys((colour for _, colour in FAMILIES), 0)
    for name in names:
        colour = next(colour for begins, colour in FAMILIES if name.startswith(begins))
        number = used[colour]
        used[colour] += 1
        looks[name] = {"color": colour, "linestyle": STYLES[number % len(STYLES)], "marker": MARKERS[number]}
    figure, axes = plt.subplots(2, 5, figsize=(18, 8), layout="constrained", sharey=True)
    for axis, (case, one) in zip(axes.ravel(), cases.items(), strict=True):
        for name, row in one["samplers"].items():
            points = [(s, e) for s, e in zip(row["seconds"], row["error"], strict=True) if e is not None]
            if points:
                axis.loglog(*zip(*points, strict=True), markersize=4, linewidth=1.2, **looks[name])
        axis.axhline(TARGET, color="black", linewidth=0.6)
        axis.set_title(f"{one['side']} × {one['side']}, {case}", fontsize=10)
        axis.set_xticks(one["budgets"], [f"{seconds:g}" for seconds in one["budgets"]])
        axis.minorticks_off()
        axis.set_xlabel("seconds")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean absolute error of marginals")
    handles = [plt.Line2D([], [], label=name, **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=8, fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def write_page(record: Mapping[str, Any], page: Path) -> None:
    """Replace the tables of the page, and draw its figure."""
    page.write_text(filled(page.read_text(), tables_of(record)))
    draw(record, FIGURE)
