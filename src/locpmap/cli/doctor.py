"""``locpmap doctor``: report the installed packages, backends and devices."""

import json
import os
import platform
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from locpmap.cli.options import JsonOption

PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "typer", "rich", "torch", "triton")


def doctor(
    as_json: JsonOption = False,
) -> None:
    """Print versions, backends, devices and the choice of "auto"."""
    report = _report()
    typer.echo(json.dumps(report) if as_json else _table(report))


def _report() -> dict[str, Any]:
    from locpmap.inference import DECODERS
    from locpmap.kernels.placement import BACKENDS, ON_GPU, choose, why_no_gpu
    from locpmap.kernels.threads import available_threads

    gpu = _gpu()
    large_jobs = "triton on cuda" if gpu and find_spec("triton") is not None else "numba on cpu"
    return {
        "locpmap": import_module("locpmap").__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "backends": {n: n == "reference" or find_spec(n) is not None for n in (*BACKENDS, ON_GPU)},
        "devices": ["cpu", *(["cuda"] if gpu else [])],
        "gpu": gpu,
        "why_no_gpu": None if gpu else why_no_gpu(),
        "threads": available_threads(),
        "numba_cache": numba_cache(),
        "auto": {"backend": choose("auto", "auto")[0], "device": "cpu", "large_jobs": large_jobs},
        "decoders": sorted(DECODERS),
    }


def _gpu() -> str | None:
    """Return the name of the GPU that torch uses, or None."""
    if find_spec("torch") is None:
        return None
    cuda = import_module("torch").cuda
    return cuda.get_device_name() if cuda.is_available() else None


def _version(name: str) -> str | None:
    """Return a package's version from its metadata, without importing the package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numba_cache() -> dict[str, Any]:
    """Return the folder of Numba's cache, chosen as Numba chooses it, and the number of kernels in it."""
    spec = find_spec("locpmap.kernels.numba")
    assert spec is not None and spec.origin is not None
    local = Path(spec.origin).parent / "__pycache__"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        folder = Path(chosen)
    elif os.access(local if local.exists() else local.parent, os.W_OK):
        folder = local
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numba"
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return {
        "folder": str(folder),
        "writable": os.access(nearest, os.W_OK),
        "kernels": sum(1 for _ in folder.rglob("*.nbi")),
    }


def _usable(backend: str, installed: bool, gpu: str | None) -> str:
    """Return the name of a backend, with the reason if it cannot be used."""
    if not installed:
        return f"{backend} (not installed)"
    if backend == "numba" and os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return "numba (cannot run: NUMBA_DISABLE_JIT is set)"
    return backend if gpu or backend != "triton" else "triton (needs an NVIDIA GPU)"


def _choice(auto: dict[str, Any]) -> str:
    """Return in one sentence where jobs run by default."""
    small = f"{auto['backend']} on {auto['device']}"
    if auto["large_jobs"] == small:
        return f'device="auto" runs every job with {small}'
    return f'device="auto" runs small jobs with {small} and large ones with {auto["large_jobs"]}'


def _table(report: dict[str, Any]) -> str:
    cache, auto = report["numba_cache"], report["auto"]
    kept = "" if cache["writable"] else "; read-only, so every process compiles: set NUMBA_CACHE_DIR to another folder"
    rows = {
        "locpmap": report["locpmap"],
        "python": f"{report['python']}, {report['platform']}",
        **{name: version or "not installed" for name, version in report["packages"].items()},
        "backends": ", ".join(_usable(name, there, report["gpu"]) for name, there in report["backends"].items()),
        "devices": ", ".join(report["devices"]) + f" ({report['gpu'] or 'no NVIDIA GPU: ' + report['why_no_gpu']})",
        "threads": report["threads"],
        "numba cache": f"{cache['kernels']} kernels in {cache['folder']}{kept}",
        "auto": _choice(auto),
        "decoders": ", ".join(report["decoders"]),
    }
    return "\n".join(f"{name:<14} {value}" for name, value in rows.items())
