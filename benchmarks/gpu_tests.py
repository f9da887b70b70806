"""Run the kernel tests on a GPU in parallel processes and record the results: `python -m benchmarks.gpu_tests`.

Arguments are test modules; the default is all of tests/triton.
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
TESTS_PER_PROCESS = 12  # at most: more cost less start-up time, fewer balance the processes better


def main(
    module: Annotated[list[Path] | None, typer.Argument(help="Test modules.")] = None,
    jobs: Annotated[int, typer.Option(help="Number of parallel processes.")] = os.cpu_count() or 1,
    output: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Run the tests, print failures, and record the counts."""
    if not torch.cuda.is_available():
        typer.echo("torch finds no GPU: make test-triton runs the same tests in Triton's interpreter.", err=True)
        raise typer.Exit(2)
    here = machine.machine() | card()
    modules = module or sorted((ROOT / "tests/triton").glob("test_*.py"))
    provenance = machine.provenance("benchmarks.gpu_tests", 0, here)
    output = output or RESULTS / f"gpu-tests-{card_name()}.json"
    found = collected(modules)
    parts = [(name, part) for name, tests in found.items() for part in divided(tests)]
    without = [path.stem for path in modules if path.stem not in found]  # a package that they need is missing
    rows: dict[str, Counter[str]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, tests): name for name, tests in parts}
        for done in as_completed(running):  # recorded immediately: an interrupted run leaves its completed part
            rows.setdefault(running.pop(done), Counter()).update(done.result())
            total = {count: sum(row[count] for row in rows.values()) for count in COUNTS}
            left = sorted({*running.values(), *without})
            write_record(output, {**provenance, "total": total, "modules": rows, "not_run": left}, [])
    typer.echo(f"{here['gpu']}: " + ", ".join(f"{number} {count}" for count, number in total.items()))
    typer.echo(f"recorded in {output}")
    raise typer.Exit(1 if total["failures"] or total["errors"] else 0)


def collected(modules: list[Path]) -> dict[str, list[str]]:
    """Return the tests of every module."""
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


def divided(tests: list[str]) -> list[list[str]]:
    """Divide the tests into parts of similar size, with at most ``TESTS_PER_PROCESS`` tests each.

    >>> [len(part) for part in divided(["test"] * 30)]
    [10, 10, 10]
    """
    n_parts = -(-len(tests) // TESTS_PER_PROCESS)
    return [tests[first::n_parts] for first in range(n_parts)]


def run(tests: list[str]) -> dict[str, Any]:
    """Run tests in a separate process and return their counts."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        done = subprocess.run([*PYTEST, *tests, f"--junitxml={report}"], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            typer.echo(f"pytest ended with status {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
        return counts(report.read_text() if report.exists() else None, len(tests))


def counts(report: str | None, n_tests: int) -> dict[str, Any]:
    """Return the counts of a JUnit report for ``n_tests`` tests; tests missing from it count as errors.

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
