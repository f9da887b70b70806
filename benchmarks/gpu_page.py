"""Tables of docs/gpu.md from the records of `make bench-gpu` and `make test-gpu`: `python -m benchmarks.gpu_page`.

Only the part of the page between its two markers is replaced.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main(
    record: Annotated[Path, typer.Option(help="Record of make bench-gpu.")] = RESULTS / "gpu-nvidia-h200.json",
    tests: Annotated[Path, typer.Option(help="Record of make test-gpu.")] = RESULTS / "gpu-tests-nvidia-h200.json",
    page: Annotated[Path, typer.Option(help="Page to rewrite.")] = ROOT / "docs/gpu.md",
) -> None:
    """Rewrite the measured part of the page."""
    tested = json.loads(tests.read_text()) if tests.exists() else None
    page.write_text(rewritten(page.read_text(), json.loads(record.read_text()), tested))


def rewritten(page: str, record: dict[str, Any], tests: dict[str, Any] | None) -> str:
    """Return the page with its measured part replaced by these records."""
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    return "\n\n".join([before, *sections(record, tests), after])


def sections(record: dict[str, Any], tests: dict[str, Any] | None) -> list[str]:
    """Return the paragraphs and tables of the measured part, in Markdown."""
    results, ceilings = record["results"], record["ceilings"]
    peers, measured = record["peers"], record.get("peers_of")
    when = f" They were measured at commit {measured['git']}, {measured['date']}." if measured else ""
    ours = dict.fromkeys(name for rows in results.values() for name in rows if name not in peers)
    parts = [
        f"{record['machine']['gpu']}, commit {record['git']}, {record['date']}, torch {record['versions']['torch']},"
        f" Triton {record['versions'].get('triton', '?')}. Median milliseconds between CUDA events around a call:",
        _table(["", *results], ([name, *(_ms(results[task].get(name)) for task in results)] for name in ours)),
        f"Other systems on the same inputs and the same GPU.{when} Accuracy is the fraction of correctly labelled"
        " pixels, which is .93 for the network's logits alone:",
        _peers(results, peers),
        "The targets:",
        _table(["target", "at most", "measured", ""], (_verdict(verdict) for verdict in record["targets"])),
        "Time of LocPMAP compared with its lower bound (floor), in milliseconds. The GPU copies"
        f" {ceilings['copy_gb_per_s']:.0f} GB/s, reads its cache at {ceilings['cache_gb_per_s']:.0f} GB/s and computes"
        f" {ceilings['philox_per_s'] / 1e9:.0f} billion Philox calls per second:",
        _floors(results),
        "Value and gradient of the pseudolikelihood with cold caches, compared with a copy that moves (reads and"
        " writes) as many bytes as the gradient reads:",
        _learning(record["learning"]),
    ]
    if tests is not None:
        total, where = tests["total"], tests["machine"]["gpu"]
        bad = total["failures"] + total["errors"]
        without = f"; not run: {', '.join(tests['not_run'])}" if tests["not_run"] else ""
        parts.append(
            f"Tests of the kernels on {where}, commit {tests['git']}, {tests['date']}: {total['tests']} run,"
            f" {bad} failed, {total['skipped']} skipped{without}."
        )
    return parts


def _peers(results: dict[str, Any], peers: list[str]) -> str:
    tasks = [task for task in results if any(name in results[task] for name in peers)]
    rows = []
    for name in ["locpmap", *peers]:
        found = [results[task].get(name) for task in tasks]
        rows.append([name, *(cell for row in found for cell in (_ms(row), _accuracy(row)))])
    return _table(["", *(heading for task in tasks for heading in (f"{task}, ms", "accuracy"))], rows)


def _floors(results: dict[str, Any]) -> str:
    parts = ("memory", "Philox", "labels", "kernels", "consecutive calls", "single call", "by the host's clock")
    headings = ["", *parts, "kernels ÷ floor"]
    rows = []
    for task, systems in results.items():
        row = systems.get("locpmap", {})
        if "kernels" in row:
            floor, busy = row["floor"], sum(row["kernels"].values())
            least = (floor["memory"], floor["philox"], floor["labels"])
            cells = (*least, busy, row["in_a_row"], row["milliseconds"], row["wall"])
            rows.append([task, *(f"{cell:.3g}" for cell in cells), f"{busy / floor['milliseconds']:.1f}"])
    return _table(headings, rows)


def _learning(rows: dict[str, Any]) -> str:
    keys = ("milliseconds", "wall", "megabytes_moved", "gb_per_s", "times_a_copy", "times_full_speed")
    measured = ([name, *(f"{row[key]:.3g}" for key in keys)] for name, row in rows.items() if "milliseconds" in row)
    headings = ["", "ms", "by the host's clock", "MB read", "GB/s", "time ÷ copy", "time ÷ full speed"]
    return _table(headings, measured)


def _verdict(verdict: dict[str, Any]) -> list[str]:
    measured = "" if verdict["measured"] is None else f"{verdict['measured']:.3g}"
    word = {True: "met", False: "**missed**", None: "not measured"}[verdict["met"]]
    return [verdict["target"], f"{verdict['limit']:.3g}", measured, word]


def _ms(row: dict[str, Any] | None) -> str:
    return f"{row['milliseconds']:.3g}" if row and "milliseconds" in row else "–"


def _accuracy(row: dict[str, Any] | None) -> str:
    return f"{row['accuracy']:.4f}".lstrip("0") if row and "accuracy" in row else "–"


def _table(headings: list[str], rows: Iterable[list[str]]) -> str:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    typer.run(main)
