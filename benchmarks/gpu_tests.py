"""Run the tests of the kernels on a GPU, several modules at a time, and record what passed.

`python -m benchmarks.gpu_tests`; further arguments name modules (all of tests/triton by default).
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import machine
from benchmarks.gpu_clock import card, card_name
from benchmarks.report import write_record

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
COUNTS = ("tests", "failures", "errors", "skipped")


def main(
    module: Annotated[list[Path] | None, typer.Argument(help="Test modules.")] = None,
    jobs: Annotated[int, typer.Option(help="Modules at a time: compiling keeps a core busy.")] = os.cpu_count() or 1,
    output: Annotated[Path | None, typer.Option(help="Where to write the JSON.")] = None,
) -> None:
    """Run, print what failed, and record the counts."""
    if not torch.cuda.is_available():
        typer.echo("torch finds no GPU: make test-triton runs the same tests in Triton's interpreter.", err=True)
        raise typer.Exit(2)
    here = machine.machine() | card()
    modules = module or sorted((ROOT / "tests/triton").glob("test_*.py"))
    provenance = machine.provenance("benchmarks.gpu_tests", 0, here)
    output = output or RESULTS / f"gpu-tests-{card_name()}.json"
    rows: dict[str, dict[str, Any]] = {}
    total: dict[str, int] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, path): path.stem for path in modules}
        for done in as_completed(running):  # recorded as they end, so that an interrupted run leaves what it has
            rows[running.pop(done)] = done.result()
            total = {count: sum(row[count] for row in rows.values()) for count in COUNTS}
            left = sorted(running.values())
            write_record(output, {**provenance, "total": total, "modules": rows, "not_run": left}, [])
    typer.echo(f"{here['gpu']}: " + ", ".join(f"{number} {count}" for count, number in total.items()))
    typer.echo(f"recorded in {output}")
    raise typer.Exit(1 if total["failures"] or total["errors"] else 0)


def run(module: Path) -> dict[str, Any]:
    """One module in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module), f"--junitxml={report}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            typer.echo(f"{module.stem}: pytest ended with status {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
        return counts(report.read_text() if report.exists() else None)


def counts(report: str | None) -> dict[str, Any]:
    """What a report in JUnit's format says; a process that left none is one error.

    >>> counts('<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1" time="2.5"/></testsuites>')
    {'tests': 3, 'failures': 1, 'errors': 0, 'skipped': 1, 'seconds': 2.5}
    """
    if report is None:
        return {"tests": 0, "failures": 0, "errors": 1, "skipped": 0, "seconds": 0.0}
    suites = list(ET.fromstring(report).iter("testsuite"))
    found = {count: sum(int(suite.get(count, 0)) for suite in suites) for count in COUNTS}
    return found | {"seconds": sum(float(suite.get("time", 0)) for suite in suites)}


if __name__ == "__main__":
    typer.run(main)
