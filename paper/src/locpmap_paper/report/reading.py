"""The record of a run, read from ``result.json`` in its folder and checked."""

from __future__ import annotations

import json
from pathlib import Path

from locpmap.errors import InputError
from locpmap.formats import PathLike, checked_path, size_of
from locpmap_paper.report.fields import build
from locpmap_paper.report.record import Record

SCHEMA = 1


def read_record(folder: PathLike) -> Record:
    """Read the record in a folder; raise an InputError if it is missing, damaged or of another schema."""
    path = run_folder(folder) / "result.json"
    if not path.exists():
        raise InputError(f"{folder} holds no result.json, expected a folder that `locpmap reproduce` wrote")
    size_of(path, "the record of a run")
    try:
        # NaN and infinity are no valid JSON; a measure with such a value is read as None.
        content = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is damaged, expected JSON") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} has schema {schema!r}, expected {SCHEMA}")
    record = build(Record, content, str(path))
    _check_names(record, path)
    _check_protocol(record, path)
    return record


def run_folder(folder: PathLike) -> Path:
    """Return the path of a run's folder; raise an InputError if it does not exist."""
    path = checked_path(folder)
    if not path.is_dir():
        came = "is a file" if path.exists() else "does not exist"
        raise InputError(f"{folder} {came}, expected the folder of a run")
    return path


def _check_names(record: Record, path: Path) -> None:
    """Check that names are in their catalogue, no cell occurs twice, and levels, seeds and labels exist."""
    for what, there in (
        ("levels", record.levels),
        ("seeds", record.protocol.seeds),
        ("labels", record.protocol.labels),
    ):
        if not there:
            raise InputError(f"{path} lists no {what}, expected at least one")
    known = {
        "level": {level.name for level in record.levels},
        "model": {model.name for model in record.models},
        "decoder": {decoder.name for decoder in record.decoders},
    }
    for part in ("fits", "rows", "ablation", "curves"):
        for n, entry in enumerate(getattr(record, part)):
            for kind, names in known.items():
                name = getattr(entry, kind, None)
                if name is not None and name not in names:
                    raise InputError(f"{path}.{part}[{n}].{kind} is {name!r}, expected one of the {kind}s listed there")
    cells = [(row.level, row.model, row.decoder, row.seed) for row in record.rows]
    if len(cells) != len(set(cells)):
        twice = next(cell for cell in cells if cells.count(cell) > 1)
        raise InputError(f"{path} holds two rows for {', '.join(map(str, twice))}, expected one")


def _check_protocol(record: Record, path: Path) -> None:
    """Check the fields of the protocol that the kind of experiment needs."""
    protocol = record.protocol
    if not record.is_scenes and (protocol.noise is None or protocol.snr is None):
        raise InputError(f"{path}.protocol has no noise, expected its name and signal-to-noise ratio")
    if record.is_scenes and not all(0 <= label < len(protocol.labels) for label in protocol.pictured):
        raise InputError(f"{path}.protocol.pictured is {list(protocol.pictured)}, expected indices of its labels")
