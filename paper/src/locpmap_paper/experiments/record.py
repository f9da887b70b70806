"""The record of a run: provenance, protocol and results in one file."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from locpmap import __version__
from locpmap.formats import write_bytes
from locpmap_paper.cores import available_cores
from locpmap_paper.experiments.decoders import Listed
from locpmap_paper.experiments.experiment import Experiment
from locpmap_paper.experiments.model import Model

SCHEMA = 1


def now() -> str:
    """Return the UTC time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def provenance(command: str, started: str, data: list[dict[str, Any]]) -> dict[str, Any]:
    """Return command, times, versions, machine and data files."""
    return {
        "command": command,
        "started": started,
        "finished": now(),
        "versions": {
            "locpmap": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in ("numpy", "numba", "torch")},
        },
        "machine": {"processor": _processor(), "cores": available_cores(), "gpu": _gpu()},
        "data": data,
    }


def data_files(data: Any) -> list[dict[str, Any]]:
    """Return the data files in the form of the record."""
    return [{"file": name, "sha256": sha256, "n_bytes": n_bytes} for name, sha256, n_bytes in data.files]


def describe_protocol(experiment: Experiment, data: Any, seeds: list[int]) -> dict[str, Any]:
    """Return the settings of an experiment."""
    height, width = experiment.size(data)
    return {
        "noise": experiment.setting.get("noise"),
        "snr": experiment.setting.get("snr"),
        "n_train": experiment.n_train,
        "n_fit": experiment.n_fit,
        "n_held_out": experiment.n_held_out,
        "n_test": experiment.n_test,
        "height": height,
        "width": width,
        "labels": list(experiment.labels),
        "pictured": list(experiment.pictured),
        "seeds": seeds,
        "paper": experiment.paper,
    }


def describe_model(model: Model) -> dict[str, str]:
    """Return a model's entry in the record."""
    return {name: getattr(model, name) for name in ("name", "features", "learning", "title", "says")}


def describe_decoder(decoder: Listed, fast: bool) -> dict[str, Any]:
    """Return a decoder's entry in the record."""
    names = ("name", "title", "method", "family", "paper", "says")
    options: dict[str, Any] = dict(decoder.settings(fast))
    if decoder.choices:
        options["one of"] = list(decoder.choices)
    return {name: getattr(decoder, name) for name in names} | {"options": options}


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Write the record atomically."""
    write_bytes(path, [json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False).encode(), b"\n"])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's name, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or os.name


def _gpu() -> str | None:
    """Return the GPU's name, if this run has imported torch."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None
