"""Time `lp.refine` and pydensecrf2, and write docs/refining.md: `python -m benchmarks.refining COMMAND`.

- `speed` measures the times and records them; needs pydensecrf2.
- `page` writes the tables of docs/refining.md from the record and the bundled weights.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer

from benchmarks import machine
from benchmarks.dense import ITERATIONS, Dense
from benchmarks.refining_page import filled, tables_of
from benchmarks.report import write_record
from benchmarks.tasks import make_task
from locpmap.refining.api import refine
from locpmap.refining.refiner import Refiner

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks/results/refining.json"
PAGE = ROOT / "docs/refining.md"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def speed(seed: int = 0, output: Path = RECORD) -> None:
    """Measure the times and record them."""
    origin = machine.provenance("benchmarks.refining", seed, machine.machine())
    write_record(output, {"speed": seconds(seed), "origin": origin}, [])


@app.command()
def page(record: Path = RECORD, output: Path = PAGE) -> None:
    """Write the tables of docs/refining.md."""
    output.write_text(filled(output.read_text(), tables_of(json.loads(record.read_text()), Refiner.load().weights)))


def seconds(seed: int, repeats: int = 15) -> dict[str, Any]:
    """Time `lp.refine`, `Refiner.measure` and pydensecrf2 on T3, alternating: elapsed and processor time."""
    task = make_task("T3", seed)
    assert task.image is not None
    image = np.ascontiguousarray(task.image)
    runs: dict[str, Callable[[], Any]] = {
        "lp.refine": lambda: refine(image, task.unary, seed=seed),
        "Refiner.measure, 200 samples": lambda: Refiner.load().measure(image, task.unary, "area", seed=seed),
        "pydensecrf2": lambda: Dense()(image, task.unary),
    }
    clocks: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            clocks[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    medians = {
        name: {key: statistics.median(clock[n] for clock in found) for n, key in enumerate(("seconds", "cpu_seconds"))}
        for name, found in clocks.items()
    }
    ratio = medians["lp.refine"]["seconds"] / medians["pydensecrf2"]["seconds"]
    return {"task": "T3", "iterations": ITERATIONS, "medians": medians, "ratio": ratio}


if __name__ == "__main__":
    app()
