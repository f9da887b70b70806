"""Tables and figure of docs/mathematics.md from the record of `benchmarks.dial`: ``python -m benchmarks.dial_page``.

The markers of tables are those of `benchmarks.refining_page`.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.refining_page import filled, table

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "benchmarks/results/dial.json", ROOT / "docs/mathematics.md"
PICTURE = ROOT / "docs/figures/dial.png"
SHOWN = (
    "pseudolikelihood",
    "composite, tiles 2×2",
    "composite, tiles 3×3",
    "composite, rows+columns",
    "contrastive, 1",
    "contrastive, 10",
    "contrastive, 30",
    "contrastive, rows+columns, 2",
    "contrastive, strips of 4, 4",
    "exact samples",
    "PCD, 5",
    "PCD rows, 5",
    "RLNS, 5",
    "climb, 1",
    "climb, 10",
    "climb, rows, 10",
    "PMP",
    "LocPMAP",
    "LocPMAP, then 10",
    "consistent",
)
COLUMNS = {
    "mnist, variance": "MNIST, σ = 0.68",
    "mnist, amplitude": "MNIST, σ = 2",
    "caltech, variance": "silhouettes, σ = 0.70",
    "caltech, amplitude": "silhouettes, σ = 1.41",
}
KINDS = {  # of methods in the figure: a pattern of their names, and a style
    "pseudolikelihood": ("pseudolikelihood", "o"),
    "composite": ("composite, .*", "s"),
    "contrastive, sites": (r"contrastive, \d+", "D-"),
    "contrastive, blocks": (r"contrastive, .+, \d+", "d"),
    "exact samples": ("exact samples", "*"),
    "PCD": ("PCD.*", "^"),
    "RLNS": ("RLNS.*", "v"),
    "climbs from the data": ("climb.*", "+"),
    "LocPMAP, PMP, consistent": ("LocPMAP.*|PMP|consistent", "x"),
}
DECODERS = ("mean_field", "lbp", "gibbs", "locpmap")


def columns(cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each data set and noise level, means over seeds of LocPMAP's test IoU and of the best rival's."""
    found = {}
    for name in dict.fromkeys(case.rpartition(", ")[0] for case in cases):
        seeds = [one for case, one in cases.items() if case.startswith(name)]
        before = [one["test"]["pseudolikelihood"]["locpmap"] for one in seeds]
        rows = [one["test"][one["chosen"]] for one in seeds]
        means = {decoder: mean(row[decoder] for row in rows) for decoder in rows[0]}
        ours = means.pop("locpmap")
        gains = [row["locpmap"] - value for row, value in zip(rows, before, strict=True)]
        rival = max(means, key=means.__getitem__)
        leads = [row["locpmap"] - row[rival] for row in rows]
        found[name] = {
            "before": mean(before),
            "after": ours,
            "gain": mean(gains),
            "error": stdev(gains) / len(gains) ** 0.5,
            "decoder": rival,
            "rival": means[rival],
            "lead": mean(leads),
            "lead_error": stdev(leads) / len(leads) ** 0.5,
            "chosen": Counter(one["chosen"] for one in seeds),
        }
    return found


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: errors of couplings, and decoding of digits."""
    models, rows = record["couplings"]["models"], record["digits"]["rows"]
    return {
        "columns": table(
            ("", "pseudolikelihood, LocPMAP", "chosen objective, LocPMAP", "best other decoder", "chosen"),
            (
                (
                    COLUMNS[name],
                    f"{one['before']:.3f}",
                    f"{one['after']:.3f} ({one['gain']:+.3f} ± {one['error']:.3f})",
                    f"{one['rival']:.3f} ({one['decoder']})",
                    ", ".join(f"{objective} ({n})" for objective, n in one["chosen"].items()),
                )
                for name, one in columns(record["tables"]["cases"]).items()
            ),
        ),
        "couplings": table(
            ("", *(name.split(" coupling")[0] for name in models)),
            ((name, *(_error(one.get(name)) for one in models.values())) for name in SHOWN),
        ),
        "digits": table(
            ("", *(f"`{name}`" for name in DECODERS), "CPU seconds"),
            (
                (
                    name,
                    *(f"{row[decoder]['iou']:.3f} ({row[decoder]['nll']:.3f})" for decoder in DECODERS),
                    f"{row['cpu_seconds']:.0f}",
                )
                for name, row in rows.items()
            ),
        ),
    }


def _error(row: Mapping[str, float] | None) -> str:
    return "–" if row is None else f"{row['coupling_rmse']:.3f}"


def picture(record: dict[str, Any]) -> None:
    """Draw the error of the coupling against CPU seconds, one panel per model."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6.9), sharex=True, sharey=True, layout="constrained")
    for panel, (name, entry) in zip(axes.ravel(), record["couplings"]["models"].items(), strict=True):
        for number, (kind, (methods, style)) in enumerate(KINDS.items()):
            rows = [row for method, row in entry.items() if re.fullmatch(methods, method)]
            if rows:
                points = [(row["cpu_seconds"], row["coupling_rmse"]) for row in rows]
                panel.plot(*zip(*points, strict=True), style, label=kind, color=f"C{number}", alpha=0.8)
        for k in (1, 3, 10, 30):
            row = entry[f"contrastive, {k}"]
            panel.annotate(
                str(k), (row["cpu_seconds"], row["coupling_rmse"]), xytext=(3, 4), textcoords="offset points"
            )
        panel.set(xscale="log", yscale="log", title=name)
        panel.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9)
    for panel in axes[1]:
        panel.set_xlabel("CPU seconds")
    figure.supylabel("error of the coupling (root mean square)")
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    recorded = json.loads(RECORD.read_text())
    PAGE.write_text(filled(PAGE.read_text(), tables_of(recorded)))
    picture(recorded)
