"""``locpmap doctor``: what is installed, what runs, what "auto" would choose."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Annotated, Any

import typer

PACKAGES = ("numpy", "scipy", "numba", "torch", "triton", "mlxtend", "matplotlib")


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False) -> None:
    """Print versions, backends, devices and what "auto" would choose."""
    facts = examine()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="locpmap doctor", show_header=False)
    for name, value in facts.items():
        lines = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, dict) else [str(value)]
        table.add_row(name, "\n".join(lines))
    Console().print(table)


def examine() -> dict[str, Any]:
    """Everything that a bug report should say about a machine."""
    import locpmap
    from locpmap.inference import DECODERS
    from locpmap.kernels import BACKENDS, choose_backend
    from locpmap.kernels.threads import available_threads

    return {
        "locpmap": locpmap.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": available_threads(),
        "packages": {name: _version(name) for name in PACKAGES},
        "backends": {name: _probe(name) for name in BACKENDS},
        "devices": {"cpu": "ok", "cuda": "no GPU engine in this version"},
        "auto": f"backend {choose_backend('auto', 'auto').name}, device cpu",
        "compiled kernels": _cache(),
        "decoders": ", ".join(DECODERS),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _probe(backend: str) -> str:
    """Decode a tiny model for real: a backend works or says why not."""
    import numpy as np

    import locpmap

    potentials = locpmap.Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    try:
        result = locpmap.infer(potentials, "icm", backend=backend)
    except Exception as error:  # whatever is broken, the doctor's job is to report it
        return f"{type(error).__name__}: {error}"
    return f"ok ({result.seconds:.2f} s for a first call)"


def _cache() -> str:
    """Where Numba keeps compiled kernels, and how many there are."""
    from locpmap.kernels.numba import climb_sites

    folder = climb_sites.climb_sites.stats.cache_path
    from pathlib import Path

    return f"{len(list(Path(folder).glob('*.nbc')))} in {folder}"
