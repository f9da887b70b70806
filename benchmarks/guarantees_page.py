"""Tables of docs/guarantees.md from the record of `benchmarks.guarantees`: ``python -m benchmarks.guarantees_page``.

The markers of tables are those of `benchmarks.refining_page`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.refining_page import filled, origins, table

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/guarantees.json", ROOT / "docs/guarantees.md"


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: intervals of each label, of all labels jointly, and label sets."""
    sets = {name: one for name, one in record.items() if name != "targets"}
    quantities = [name for name in next(iter(sets.values()))["rows"] if "jointly" not in name and name != "label sets"]
    heads = (
        "",
        "quantity",
        "coverage",
        "of labels that occur",
        "lowest coverage of a label",
        "lowest coverage of the three groups by size",
    )
    tables = {
        "labels": table(
            (*heads, "width ÷ that of argmax ± quantile", "its coverage of labels that occur"),
            (
                (
                    name,
                    quantity,
                    f"{row['coverage']:.3f} ± {row['sd of coverage']:.3f}",
                    f"{row['coverage of occurring labels']:.3f}",
                    f"{row['lowest label']:.3f}",
                    f"{row['lowest tercile']:.3f}",
                    f"{row['width'] / row['width, argmax']:.2f}",
                    f"{row['coverage of occurring labels, argmax']:.3f}",
                )
                for name, one in sets.items()
                for quantity in quantities
                for row in [one["rows"][quantity]]
            ),
        )
    }
    tables["jointly"] = table(
        ("", "quantity", "coverage of all labels", "width ÷ that of argmax ± quantile"),
        (
            (
                name,
                quantity,
                f"{row['coverage']:.3f} ± {row['sd of coverage']:.3f}",
                f"{row['width'] / row['width, argmax']:.2f}",
            )
            for name, one in sets.items()
            for quantity in quantities
            for row in [one["rows"][f"{quantity}, jointly"]]
        ),
    )
    tables["sets"] = table(
        ("", "pixels with the true label in their set", "labels in a set"),
        (
            (name, f"{row['coverage']:.3f} ± {row['sd of coverage']:.3f}", f"{row['labels']:.2f}")
            for name, one in sets.items()
            for row in [one["rows"]["label sets"]]
        ),
    )
    tables["origin"] = origins(sets, "images", "splits")
    return tables


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables_of(json.loads(RECORD.read_text()))))
