"""Tables and figure of docs/mathematics.md from the record of `benchmarks.dial`: ``python -m benchmarks.dial_page``.

The markers of tables are those of `benchmarks.refining_page`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.refining_page import filled, table

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "benchmarks/results/dial.json", ROOT / "docs/mathematics.md"
PICTURE = ROOT / "docs/figures/dial.png"
SHOWN = (
    "pseudolikelihood",
    "contrastive, 1",
    "contrastive, 10",
    "contrastive, 30",
    "PCD, 5",
    "RLNS, 5",
    "PMP",
    "LocPMAP",
    "consistent",
)
DECODERS = ("mean_field", "lbp", "gibbs", "locpmap")


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: errors of couplings, and decoding of digits."""
    models, rows = record["couplings"]["models"], record["digits"]["rows"]
    return {
        "couplings": table(
            ("", *(name.split(" coupling")[0] for name in models)),
            ((name, *(f"{one[name]['coupling_rmse']:.3f}" for one in models.values())) for name in SHOWN),
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


def picture(record: dict[str, Any]) -> None:
    """Draw the error of the coupling against CPU seconds, one panel per model."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
    kinds = {"pseudolikelihood": "o", "composite": "s", "contrastive": "D", "PCD": "^", "RLNS": "v", "": "x"}
    for panel, (name, entry) in zip(axes.ravel(), record["couplings"]["models"].items(), strict=True):
        shown = {kind: [row for method, row in entry.items() if method.split(",")[0] == kind] for kind in kinds}
        shown["biased: LocPMAP, PMP, consistent"] = [entry[m] for m in ("LocPMAP", "PMP", "consistent")]
        for kind, rows in shown.items():
            if rows:
                points = [(row["cpu_seconds"], row["coupling_rmse"]) for row in rows]
                line = "-" if kind == "contrastive" else ""
                panel.plot(*zip(*points, strict=True), kinds.get(kind, "x"), linestyle=line, label=kind, alpha=0.8)
        for k in (1, 3, 10, 30):
            row = entry[f"contrastive, {k}"]
            panel.annotate(
                str(k), (row["cpu_seconds"], row["coupling_rmse"]), xytext=(3, 4), textcoords="offset points"
            )
        panel.set(xscale="log", yscale="log", title=name)
        panel.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.supxlabel("CPU seconds")
    figure.supylabel("error of the coupling (root mean square)")
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    recorded = json.loads(RECORD.read_text())
    PAGE.write_text(filled(PAGE.read_text(), tables_of(recorded)))
    picture(recorded)
