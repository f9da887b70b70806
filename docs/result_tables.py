"""Render the measured parts of docs/results.md from recorded runs: `python docs/result_tables.py`.

Each part is between a pair of markers. The rest of the page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from locpmap_paper.report.findings import Verdict, verdicts
from locpmap_paper.report.measures import MEAN_IOU
from locpmap_paper.report.reading import read_record
from locpmap_paper.report.record import Record

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results.md"
DENOISING = {"raw": "raw-pl", "deep": "deep-pl"}  # features -> model learned as in the paper
SCENES = "pl-edges"
TUNED = ("locpmap-tuned", "locpmap-tuned-sites")
JOINT = "deep-consistent-far"
CLEAR, LEVEL = 2.0, 1.0  # standard errors
TITLES = {  # of models whose recorded titles use words that the pages no longer use
    "alike-edges": "similar pixels, boundaries, consistent",
    "joint-beside": "network and couplings, jointly, averaged with the network",
}
Numbers = list[float | None]


def rewritten(page: str) -> str:
    """Return the page with its measured parts rendered from the records."""
    for name in ("mnist", "caltech", "stanford"):
        record = read_record(ROOT / "results" / name)
        table = scenes(record) if name == "stanford" else denoising(record)
        page = _replace(page, f"{name} table", table)
        page = _replace(page, f"{name} not first", not_first(record))
    return page


def denoising(record: Record) -> str:
    """Return the mean IoU of the paper's decoders on raw and deep features: the paper's numbers, then ours by level."""
    columns = [(level.name, model) for level in record.levels for model in DENOISING.values()]
    paper = record.protocol.paper
    assert paper is not None
    rows = []
    for decoder in record.decoders:
        if decoder.paper or decoder.name in TUNED:
            theirs = [table.get(decoder.paper or "", (None,))[-1] for table in (paper.raw, paper.deep)]
            rows.append((decoder.title, theirs, [_value(record, *column, decoder.name) for column in columns]))
    text = _table(["paper", *(f"ours, σ = {level.sigma[0]:.2g}" for level in record.levels)], rows)
    joint = [_value(record, level.name, JOINT, "locpmap-conditional") for level in record.levels]
    alone = [_value(record, level.name, "ce-fresh", "argmax") for level in record.levels]
    pairs = zip(record.levels, joint, alone, strict=True)
    words = [
        f"{_shown(ours, 4)} against {_shown(network, 4)} at σ = {level.sigma[0]:.2g}" for level, ours, network in pairs
    ]
    learned = "Network and CRF learned together, decoded by LocPMAP with conditional probabilities"
    return f"{text}\n\n{learned}, compared with the network alone: {' and '.join(words)}."


def scenes(record: Record) -> str:
    """Return the mean IoU of the paper's decoders on three kinds of unaries: the paper's numbers, then ours."""
    paper = record.protocol.paper
    assert paper is not None
    rows = []
    for decoder in record.decoders:
        if decoder.paper in paper.raw or decoder.name in TUNED:
            theirs = [table.get(decoder.paper or "", (None,))[-1] for table in (paper.raw, paper.deep)]
            ours = [_value(record, level.name, SCENES, decoder.name) for level in record.levels]
            rows.append((decoder.title, theirs, ours))
    alone = [_value(record, level.name, "unaries", "argmax") for level in record.levels]
    found = verdicts(record)
    best: Numbers = [
        max(verdict.best.value.mean for verdict in found if verdict.level == level) for level in record.levels
    ]
    rows += [("unaries alone", [None, None], alone), ("LocPMAP on the best model", [None, None], best)]
    heads = ["paper, boosted", "paper, deep", *(f"ours, {level.name}" for level in record.levels)]
    lines = [f"| mean IoU | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    lines += [f"| {title} | {' | '.join(map(_shown, [*theirs, *ours]))} |" for title, theirs, ours in rows]
    return "\n".join(lines)


def not_first(record: Record) -> str:
    """List where another decoder has a higher mean IoU on the same weights, one line for each decoder that is first."""
    found = verdicts(record)
    lost = [verdict for verdict in found if not verdict.is_first]
    text = f"LocPMAP is first in {len(found) - len(lost)} of {len(found)} combinations of weights and {_kind(record)}"
    n_level = sum(verdict.lead is not None and not verdict.lead.is_beyond(LEVEL) for verdict in lost)
    text += f", and within one standard error of the first in {n_level} more." if n_level else "."
    by: dict[str, list[Verdict]] = {}
    for verdict in lost:
        by.setdefault(verdict.ahead[0].decoder.title, []).append(verdict)
    lines = [f"- {name} ({len(group)}): {'; '.join(map(_gap, group))}." for name, group in by.items()]
    lead = " In the others another decoder is first, by this lead in mean IoU (~: below two standard errors):"
    return "\n".join([text + lead, "", *lines])


def _kind(record: Record) -> str:
    return "unaries" if record.is_scenes else "noise level"


def _gap(verdict: Verdict) -> str:
    ahead, lead = verdict.ahead[0].value.mean - verdict.best.value.mean, verdict.lead
    unclear = lead is None or lead.errors is None or abs(lead.errors) < CLEAR
    sigma = verdict.level.sigma
    level = f"σ = {sigma[0]:.2g}" if sigma else verdict.level.name
    title = TITLES.get(verdict.model.name, verdict.model.title)
    return f"{title[:1].lower()}{title[1:]} ({level}) {_shown(ahead, 4)}{'~' if unclear else ''}"


def _value(record: Record, level: str, model: str, decoder: str) -> float | None:
    found = record.estimate(level, model, decoder, MEAN_IOU.value)
    return None if found is None else found.mean


def _table(heads: Sequence[str], rows: Sequence[tuple[str, Numbers, Numbers]]) -> str:
    """Return a table with two numbers per cell: raw and deep features."""
    lines = [f"| mean IoU, raw / deep | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for title, theirs, ours in rows:
        pairs = [theirs, *(ours[n : n + 2] for n in range(0, len(ours), 2))]
        lines.append(f"| {title} | {' | '.join(' / '.join(map(_shown, pair)) for pair in pairs)} |")
    return "\n".join(lines)


def _shown(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}".removeprefix("0")


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _replace(page: str, name: str, text: str) -> str:
    begin, end = _markers(name)
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text("utf-8")), "utf-8")
