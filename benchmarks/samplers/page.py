"""Tables and figures of docs/samplers.md from the records, written by ``python -m benchmarks.samplers page``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.refining_page import filled, table

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "benchmarks/results/samplers.json", ROOT / "docs/samplers.md"
UPDATES = ROOT / "benchmarks/results/updates.json"
FIGURES = ROOT / "docs/figures"
TARGET = 0.05
PER_CPU = "updates per CPU nanosecond"
FAMILIES = (("LocPMAP", "tab:red"), ("Gibbs,", "tab:blue"), ("Swendsen", "tab:green"), ("", "tab:gray"))
STYLES = ("-", "--", ":", "-.")
MARKERS = "osd^vPX*"


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of errors at the largest budget, of bounds, and of the origins."""
    updates = (one for name, one in json.loads(UPDATES.read_text()).items() if name != "targets")
    return {
        "errors": _errors(record["random"]["cases"]),
        "bounds": _bounds(record["bounds"]["cases"]),
        "origin": table(
            ("command", "machine", "load", "commit", "date"),
            (
                (
                    f"`{origin['command']}`",
                    origin["machine"].get("gpu") or f"{origin['machine']['cpu']}, {origin['machine']['cores']} cores",
                    str(origin["machine"]["load"]),
                    origin["git"],
                    origin["date"],
                )
                for origin in (*(record[name]["origin"] for name in ("random", "learned", "bounds")), *updates)
            ),
        ),
    }


def _bounds(cases: Mapping[str, Any]) -> str:
    rows: dict[str, tuple[str, str]] = {
        "log Z per site": ("log Z", ""),
        "`trw`, excess over log Z": ("trw", ""),
        "perturbations, excess over log Z": ("perturbation", "standard error"),
        "`trw`, excess over the best score": ("best score, trw", ""),
        "`max_product(n_forests=8)`, the same": ("best score, max_product", ""),
    }
    found = [
        (name, *(_bound(one[key], one.get(error)) for one in cases.values())) for name, (key, error) in rows.items()
    ]
    seconds = ("seconds of `exact`", *(f"{one['seconds of exact']:.1f}" for one in cases.values()))
    return table(("", *cases), [*found, seconds])


def _bound(value: float, error: float | None) -> str:
    return f"{round(value, 3) + 0.0:.3f}" + ("" if error is None else f" ± {error:.3f}")


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


def draw_errors(cases: Mapping[str, Any], n_columns: int, path: Path) -> None:
    """Draw errors against seconds, one panel per kind of model."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for one in cases.values() for name in one["samplers"]))
    looks: dict[str, dict[str, Any]] = {}
    used = dict.fromkeys((colour for _, colour in FAMILIES), 0)
    for name in names:
        colour = next(colour for begins, colour in FAMILIES if name.startswith(begins))
        number = used[colour]
        used[colour] += 1
        looks[name] = {"color": colour, "linestyle": STYLES[number % len(STYLES)], "marker": MARKERS[number]}
    n_rows = -(-len(cases) // n_columns)
    size = (3.4 * n_columns, 3.1 * n_rows + 1)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=size, layout="constrained", sharey=True, squeeze=False)
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
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def draw_updates(record: Mapping[str, Any], path: Path) -> None:
    """Draw site updates per second of `lp.Gibbs` and THRML; on the CPU, seconds of all threads are added."""
    import matplotlib.pyplot as plt

    runs = {name: one for name, one in record.items() if name != "targets"}
    figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
    for number, (system, colour) in enumerate((("lp.Gibbs", "tab:blue"), ("THRML", "tab:gray"))):
        rates = [1e9 * one.get(PER_CPU, one["updates per nanosecond"])[system] for one in runs.values()]
        bars = axis.barh([place + 0.38 * number for place in range(len(runs))], rates, 0.36, color=colour, label=system)
        axis.bar_label(bars, [f"{rate / 1e6:,.0f} million" for rate in rates], padding=3, fontsize=8)
    axis.set_xscale("log")
    axis.set_xlim(1e6, 4e11)
    devices = [f"H200, {run_chains(name)}" if "cuda" in name else f"CPU, {run_chains(name)}" for name in runs]
    axis.set_yticks([place + 0.19 for place in range(len(runs))], devices)
    axis.invert_yaxis()
    axis.set_xlabel("site updates per second of processor time")
    axis.legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def run_chains(name: str) -> str:
    """Return the number of chains in the name of a run, such as "256², 4 chains, cpu"."""
    chains = name.split(", ")[1]
    return "1 chain" if chains == "1 chains" else chains


def write_page(record: Mapping[str, Any], page: Path) -> None:
    """Replace the tables of the page, and draw its figures."""
    page.write_text(filled(page.read_text(), tables_of(record)))
    draw_errors(record["random"]["cases"], 3, FIGURES / "samplers.png")
    draw_errors(record["learned"]["cases"], 4, FIGURES / "samplers-learned.png")
    draw_updates(json.loads(UPDATES.read_text()), FIGURES / "samplers-updates.png")
