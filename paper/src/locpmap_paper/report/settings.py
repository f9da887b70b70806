"""Tables of settings, fits, data files, protocol and machine."""

from __future__ import annotations

from typing import Any

from locpmap_paper.report.blocks import Cell, Table
from locpmap_paper.report.measures import seconds
from locpmap_paper.report.record import Record
from locpmap_paper.report.statistics import estimate

FEW = 6  # longest list that is printed in full; longer ones are in the record


def settings_table(record: Record) -> Table:
    """Return the table of decoders with their options and descriptions."""
    rows = tuple(
        (Cell(d.title), Cell(d.method), Cell(_pairs(d.options) or "defaults"), Cell(d.says)) for d in record.decoders
    )
    columns = ("decoder", "method", "options", "description")
    return Table("Decoders and their settings", columns, rows, frozenset({0, 1, 2, 3}))


def fits_table(record: Record) -> Table:
    """Return the table of fits with their durations and details."""
    rows = []
    for model in record.models_with_rows():
        for level in record.levels:
            fits = [fit for fit in record.fits if (fit.level, fit.model) == (level.name, model.name)]
            if fits:
                took = estimate(fit.seconds for fit in fits if fit.seconds is not None)
                first = min(fits, key=lambda fit: fit.seed)
                rows.append(
                    (
                        Cell(model.title),
                        Cell(level.name),
                        Cell("–" if took is None else seconds(took.mean)),
                        Cell(_pairs(first.details) or "–"),
                    )
                )
    columns = ("model", record.level_kind, "seconds", "details (first seed)")
    return Table("How each model was learned", columns, tuple(rows), frozenset({0, 1, 3}))


def data_table(record: Record) -> Table:
    """Return the table of data files with their hashes."""
    rows = tuple((Cell(d.file), Cell(f"{d.n_bytes:,}"), Cell(d.sha256)) for d in record.provenance.data)
    return Table("Data files", ("file", "bytes", "sha256"), rows, frozenset({0, 2}))


def facts_table(record: Record) -> Table:
    """Return the table of protocol, command, versions and machine."""
    protocol, source = record.protocol, record.provenance
    size = f"{'at most ' if record.is_scenes else ''}{protocol.height}×{protocol.width}"
    split = f"{protocol.n_train:,} training images"
    if protocol.n_fit is not None and protocol.n_held_out is not None:
        split += f" ({protocol.n_fit:,} for fitting, {protocol.n_held_out:,} held out)"
    facts = {
        "images": f"{size}, labels {', '.join(protocol.labels)}; {split}, {protocol.n_test:,} test images",
        **_level_facts(record),
        "seeds": ", ".join(map(str, protocol.seeds)),
        "command": source.command or "not recorded",
        "ran": f"{source.started} to {source.finished}",
        "versions": _pairs(source.versions),
        "machine": _pairs(source.machine),
    }
    rows = tuple((Cell(name), Cell(value)) for name, value in facts.items())
    return Table("Protocol, command and machine", ("item", "value"), rows, frozenset({0, 1}))


def _level_facts(record: Record) -> dict[str, str]:
    """Return the noise and its levels, or the kinds of unaries."""
    protocol = record.protocol
    if protocol.noise is None:
        return {record.level_kind: ", ".join(level.name for level in record.levels)}
    sigmas = (f"{x.name}: {', '.join(f'{value:.4f}' for value in x.sigma)}" for x in record.levels)
    snr = "unknown" if protocol.snr is None else f"{protocol.snr:g}"
    return {"noise": f"{protocol.noise}, signal-to-noise ratio {snr}", "σ per seed": "; ".join(sigmas)}


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_word(value)}" for key, value in values.items())


def _word(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        inner = [*map(_word, value)] if len(value) <= FEW else [_word(value[0]), "..", _word(value[-1])]
        return f"[{', '.join(inner)}]" + ("" if len(value) <= FEW else f" ({len(value)} values)")
    if isinstance(value, dict):
        return f"({_pairs(value)})" if len(value) <= FEW else f"({len(value)} entries, see result.json)"
    return str(value)
