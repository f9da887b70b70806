"""Run the tests of the kernels on a GPU, several shares of a module at a time, and record what passed.

`python -m benchmarks.gpu_tests`; further arguments name modules (all of tests/triton by default).
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
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
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
COUNTS = ("tests", "failures", "errors", "skipped")
SHARE = 12  # tests of a process: many, for each takes seconds to start; few, for the longest should not run last


def main(
    module: Annotated[list[Path] | None, typer.Argument(help="Test modules.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes at a time: compiling keeps a core busy.")] = os.cpu_count() or 1,
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
    found = collected(modules)
    shares = [(name, part) for name, tests in found.items() for part in shared(tests)]
    without = [path.stem for path in modules if path.stem not in found]  # for want of a package
    rows: dict[str, Counter[str]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, tests): name for name, tests in shares}
        for done in as_completed(running):  # recorded as they end, so that an interrupted run leaves what it has
            rows.setdefault(running.pop(done), Counter()).update(done.result())
            total = {count: sum(row[count] for row in rows.values()) for count in COUNTS}
            left = sorted({*running.values(), *without})
            write_record(output, {**provenance, "total": total, "modules": rows, "not_run": left}, [])
    typer.echo(f"{here['gpu']}: " + ", ".join(f"{number} {count}" for count, number in total.items()))
    typer.echo(f"recorded in {output}")
    raise typer.Exit(1 if total["failures"] or total["errors"] else 0)


def collected(modules: list[Path]) -> dict[str, list[str]]:
    """The tests of every module."""
    done = subprocess.run([*PYTEST, "--collect-only", *map(str, modules)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        typer.echo(f"pytest cannot collect the tests:\n{done.stdout[-3000:]}", err=True)
        raise typer.Exit(1)
    tests: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        path, found, _ = line.partition("::")
        if found:
            tests.setdefault(Path(path).stem, []).append(line)
    return tests


def shared(tests: list[str]) -> list[list[str]]:
    """The tests in shares of about one size.

    >>> [len(share) for share in shared(["test"] * 30)]
    [10, 10, 10]
    """
    n_shares = -(-len(tests) // SHARE)
    return [tests[part::n_shares] for part in range(n_shares)]


def run(tests: list[str]) -> dict[str, Any]:
    """Some tests in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        done = subprocess.run([*PYTEST, *tests, f"--junitxml={report}"], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            typer.echo(f"pytest ended with status {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
        return counts(report.read_text() if report.exists() else None, len(tests))


def counts(report: str | None, n_tests: int) -> dict[str, Any]:
    """What a report in JUnit's format says of so many tests; those that it does not speak of are errors.

    >>> counts('<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1" time="2.5"/></testsuites>', 4)
    {'tests': 3, 'failures': 1, 'errors': 1, 'skipped': 1, 'seconds': 2.5}
    >>> counts(None, 2)
    {'tests': 0, 'failures': 0, 'errors': 2, 'skipped': 0, 'seconds': 0}
    """
    suites = [] if report is None else list(ET.fromstring(report).iter("testsuite"))
    found = {count: sum(int(suite.get(count, 0)) for suite in suites) for count in COUNTS}
    found["errors"] += n_tests - found["tests"]
    return found | {"seconds": sum(float(suite.get("time", 0)) for suite in suites)}


if __name__ == "__main__":
    typer.run(main)
