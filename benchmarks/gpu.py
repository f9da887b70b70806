"""Time decoding on a GPU, with everything resident there: `python -m benchmarks.gpu`."""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import locpmap as lp
from benchmarks import machine
from benchmarks.report import write_record
from benchmarks.targets import Verdict
from benchmarks.tasks import make_task

RESULTS = Path(__file__).parent / "results"
REPEATS = 9

# Milliseconds for M = 50 samples with labels, probability and variance, by the task's name here.
TARGETS = {"T2": 0.5, "T3": 2.5, "T4": 25.0, "5,000 digits": 8.0, "115 × T2": 40.0}

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "locpmap": ("locpmap", {}),
    "locpmap, perturbed start": ("locpmap", {"start": "perturbed"}),
    "locpmap, conditional": ("locpmap", {"probability": "conditional"}),
    "locpmap, rows and columns": ("locpmap", {"blocks": "rows+columns"}),
    "icm": ("icm", {}),
    "mean field, 48 sweeps": ("mean_field", {"max_sweeps": 48, "tolerance": 0.0}),
    "gibbs, 100 sweeps": ("gibbs", {"n_samples": 50, "burn_in": 50}),
}


def main(
    task: Annotated[list[str] | None, typer.Option(help="A task to run; may be given several times.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the tasks.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Where to write the JSON.")] = None,
) -> None:
    """Milliseconds per call on the GPU that torch finds."""
    if not torch.cuda.is_available():
        typer.echo("torch finds no GPU: this benchmark needs one.", err=True)
        raise typer.Exit(2)
    name = torch.cuda.get_device_name()
    console = Console(width=None if sys.stdout.isatty() else 120)
    ceiling = copy_bandwidth()
    console.print(f"{name}, copies {ceiling:.0f} GB/s, {machine.git_version()}, seed {seed}")
    results: dict[str, dict[str, Any]] = {}
    for label in task or TARGETS:
        potentials = resident(label, seed)
        results[label] = {}
        for row, (method, options) in METHODS.items():
            if potentials.n_images * potentials.n_sites > 2**23 and row not in list(METHODS)[:2]:
                continue  # minutes of building neighbour lists on the CPU
            results[label][row] = measure(potentials, method, options)
        print_task(console, label, results[label])
    verdicts = [
        Verdict(f"{label}: milliseconds", limit, results[label]["locpmap"].get("milliseconds"))
        for label, limit in TARGETS.items()
        if label in results
    ]
    where = output or RESULTS / f"gpu-{name.lower().replace(' ', '-')}.json"
    here = machine.machine() | {"gpu": name, "copy_gb_per_s": ceiling}
    write_record(where, machine.provenance("benchmarks.gpu", seed, here) | {"results": results}, verdicts)


def resident(label: str, seed: int) -> lp.Potentials:
    """A task's potentials on the GPU."""
    task = make_task({"5,000 digits": "T1", "115 × T2": "T2"}.get(label, label), seed)
    unary, pairwise = task.unary, task.pairwise
    if label == "5,000 digits":
        unary = np.tile(unary, (10, 1, 1, 1))
    elif label == "115 × T2":
        unary = np.broadcast_to(unary, (115, *unary.shape))
    weights = tuple(torch.tensor(w).cuda() for w in pairwise) if isinstance(pairwise, tuple) else pairwise
    return lp.Potentials.grid(torch.tensor(unary).cuda(), weights)


def measure(potentials: lp.Potentials, method: str, options: dict[str, Any]) -> dict[str, Any]:
    """The median of several calls by CUDA's own clock, after two that compile and warm up, and the memory they took."""

    def call() -> Any:
        result = lp.infer(potentials, method, **options)
        return result.labels, result.variance, result

    try:
        result = call()[2]
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        times = timed(call)
    except (lp.errors.LocpmapError, RuntimeError) as error:
        return {"refused": f"{type(error).__name__}: {error}"[:300]}
    return {
        "milliseconds": statistics.median(times),
        "spread": [min(times), max(times)],
        "n_sweeps": result.n_sweeps,
        "megabytes": (torch.cuda.max_memory_allocated() - held) / 1e6,
    }


def timed(call: Callable[[], Any]) -> list[float]:
    """Milliseconds of several calls."""
    call()
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def copy_bandwidth() -> float:
    """GB/s read and written by a copy of 2 GB."""
    source = torch.zeros(2**29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / statistics.median(timed(lambda: target.copy_(source))) / 1e6


def print_task(console: Console, label: str, rows: dict[str, dict[str, Any]]) -> None:
    """One table."""
    table = Table("method", "ms", "least", "most", "sweeps", "MB", title=label)
    for name, row in rows.items():
        if "refused" in row:
            table.add_row(name, row["refused"])
            continue
        cells = (row["milliseconds"], *row["spread"], row["n_sweeps"], row["megabytes"])
        table.add_row(name, *(f"{cell:.3g}" for cell in cells))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
