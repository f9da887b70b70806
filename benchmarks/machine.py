"""Where and with what a benchmark ran."""

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
    "PyMaxflow",
    "gco-wrapper",
    "pgmax",
    "jax",
)


def machine() -> dict[str, str | int | float]:
    """Processor, cores that this process may use, how busy they are (a load above 0 blurs every figure), system."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def machine_name() -> str:
    """The same as part of a file name."""
    words = f"{_cpu_model()} {len(os.sched_getaffinity(0))} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def versions() -> dict[str, str]:
    """The packages that take part and are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_version() -> str:
    """What LOCPMAP_COMMIT says, for a copy without its repository; else the commit, with -dirty where files differ."""
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
    """Where a record comes from: the command, the day, the commit, the seed, and the machine as it was at the start."""
    return {
        # Of paths the last part: the rest is the machine's own.
        "command": shlex.join(["python", "-m", module, *(arg.rsplit("/", 1)[-1] for arg in sys.argv[1:])]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git": git_version(),
        "seed": seed,
        "machine": here,
        "versions": versions(),
    }
