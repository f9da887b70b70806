"""Time every system on every task on the CPU, print tables and record them: `python -m benchmarks.cpu`."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import machine
from benchmarks.first_call import first_call
from benchmarks.report import print_task, print_verdicts, write_json
from benchmarks.rows import ROWS
from benchmarks.targets import Measurement, judge
from benchmarks.tasks import NAMES, make_task
from benchmarks.workers import Clock, Worker

REPEATS = 7
BUDGET = 20.0  # seconds after which a slow system is not repeated on a task
RESULTS = Path(__file__).parent / "results"


def main(
    task: Annotated[list[str] | None, typer.Option(help="Task to run; may be given several times.")] = None,
    system: Annotated[list[str] | None, typer.Option(help="System to run; may be given several times.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    fast: Annotated[bool, typer.Option(help="Smoke test: T2, fast systems, two repeats, nothing recorded.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Compare locpmap on the CPU with the other libraries that are installed."""
    names = task or (["T2"] if fast else NAMES)
    chosen = set(system or [row.name for row in ROWS if not (fast and row.name in ("PGMax", "torch LocPMAP"))])
    whole = not (task or system or fast)
    console = Console(width=None if sys.stdout.isatty() else 140)
    left_out = {row.name: f"{row.module} is not installed" for row in ROWS if not row.available}
    here = machine.machine()
    console.print(f"{here['cpu']}, {here['cores']} cores, load {here['load']}, {machine.git_version()}, seed {seed}")

    results = {}
    with tempfile.TemporaryDirectory() as folder, Progress(console=console, transient=True) as progress:
        for name in progress.track(names, description="tasks"):
            path = Path(folder) / "task.npz"
            make_task(name, seed).save(path)
            rows = [row.name for row in ROWS if row.name in chosen and name in row.tasks and row.available]
            results[name] = _measure(name, rows, path, 2 if fast else REPEATS, progress, left_out)
            print_task(console, name, results[name])

    try:
        answer = first_call()
    except subprocess.CalledProcessError as error:
        answer, left_out["first call"] = None, f"the process ended with status {error.returncode}"
    verdicts = judge(results, answer)
    print_verdicts(console, verdicts)
    for name, reason in left_out.items():
        console.print(f"skipped: {name} ({reason})")
    if whole or output:
        provenance = {**machine.provenance("benchmarks.cpu", seed, here), "first_call_seconds": answer}
        output = output or RESULTS / f"cpu-{machine.machine_name()}.json"
        write_json(output, provenance, results, verdicts, left_out)
        console.print(f"recorded in {output}")


def _measure(
    task: str, names: list[str], path: Path, repeats: int, progress: Progress, left_out: dict[str, str]
) -> dict[str, Measurement]:
    """Start all systems, then time them in rounds, one run of each system per round."""
    workers: dict[str, Worker] = {}
    runs: dict[str, list[Clock]] = {}
    steps = progress.add_task(task, total=len(names) * (1 + repeats))
    for name in names:
        progress.update(steps, description=f"{task}: {name}", advance=1)
        try:
            workers[name] = Worker(name, path)
            runs[name] = []
        except Exception as error:
            left_out[f"{name} on {task}"] = str(error)
    for _ in range(repeats):
        for name, worker in workers.items():
            progress.update(steps, description=f"{task}: {name}", advance=1)
            if sum(clock.seconds for clock in [worker.first.clock, *runs[name]]) < BUDGET:
                runs[name].append(worker.run())
    progress.remove_task(steps)
    measured = {}
    for name, worker in workers.items():
        clocks = runs[name] or [worker.first.clock]
        seconds = [clock.seconds for clock in clocks]
        measured[name] = Measurement(
            seconds=statistics.median(seconds),
            runs=seconds,
            cpu_seconds=statistics.median(clock.cpu_seconds for clock in clocks),
            peak_bytes=worker.first.peak_bytes,
            accuracy=worker.first.accuracy,
        )
        worker.close()
    return measured


if __name__ == "__main__":
    typer.run(main)
