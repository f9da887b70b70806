"""Tables of docs/deciding.md from the record of `benchmarks.deciding`.

``python -m benchmarks.deciding_page`` writes them.  The markers of tables are those of `benchmarks.refining_page`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.refining_page import filled, origins, table

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/deciding.json", ROOT / "docs/deciding.md"
NETWORK, REFINED, DENSE = "network", "lp.refine", "pydensecrf2, tuned"
ARGMAX, IMAGE, DICE = "argmax", "IoU per image", "Dice per image"
SAMPLED = "IoU per image, with samples"  # of lp.refine only
HELD_OUT, TEST = "IoU, statistics of held-out images", "IoU, statistics of the images themselves"
RANKSEG = "RankSEG"
OURS, RIVALS = (IMAGE, SAMPLED, DICE, HELD_OUT, TEST), (f"{RANKSEG}, IoU", f"{RANKSEG}, Dice")


def tables_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name: one per data set, seconds, and origin."""
    sets = {name: one for name, one in record.items() if name != "targets"}
    tables = {name: _gains(one["rows"]) for name, one in sets.items()}
    names = (IMAGE, DICE, HELD_OUT, *RIVALS)
    tables["seconds"] = table(
        ("", *names),
        ((name, *(f"{1000 * one['seconds'][each]:.1f}" for each in names)) for name, one in sets.items()),
    )
    tables["origin"] = origins(sets)
    return tables


def _gains(rows: Mapping[str, Any]) -> str:
    measures = list(rows[f"{NETWORK}: {ARGMAX}"]["values"])
    order = [f"{source}: {name}" for source in (NETWORK, REFINED) for name in (ARGMAX, *OURS, *RIVALS)]
    return table(
        ("labels", *measures),
        (
            (name, *(_cell(rows[name], each, name == order[0]) for each in measures))
            for name in (*order, REFINED, DENSE)
            if name in rows
        ),
    )


def _cell(row: Mapping[str, Any], measure: str, first: bool) -> str:
    gain, error = row["gains"][measure]
    return f"{row['values'][measure]:.4f}" if first else f"{gain:+.4f} ± {error:.4f}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), tables_of(json.loads(RECORD.read_text()))))
