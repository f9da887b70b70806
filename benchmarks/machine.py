"""Machine and software versions of a benchmark run."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "locpmap",
    "numpy",
    "scipy",
    "numba",
    "torch",
    "triton",
    "scikit-learn",
    "dask",
    "distributed",
    "zarr",
    "pydensecrf2",
    "rankseg",
    "PyMaxflow",
    "gco-wrapper",
    "pgmax",
    "jax",
)


def machine() -> dict[str, str | int | float]:
    """Return processor, available cores, load (above 0, timings are less reliable) and system."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def machine_name() -> str:
    """Return processor and cores as part of a file name."""
    words = f"{_cpu_model()} {len(os.sched_getaffinity(0))} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def versions() -> dict[str, str]:
    """Return the versions of the installed packages of ``PACKAGES``."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_version() -> str:
    """Return LOCPMAP_COMMIT if set (for copies without a repository), or the commit, with -dirty if files differ."""
    if given := os.environ.get("LOCPMAP_COMMIT"):
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu_model() -> str:
    for source in ("/proc/cpuinfo", None):
        try:
            text = Path(source).read_text() if source else subprocess.check_output(["lscpu"], text=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        match = re.search(r"^model name\s*:\s*(.+)$", text, re.IGNORECASE | re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.machine()


def provenance(module: str, seed: int, here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of a record: command, date, commit, seed, machine at the start, and versions."""
    return {
        # Only the last part of paths: the rest is specific to the machine.
        "command": shlex.join(["python", "-m", module, *(arg.rsplit("/", 1)[-1] for arg in sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git": git_version(),
        "seed": seed,
        "machine": here,
        "versions": versions(),
    }
