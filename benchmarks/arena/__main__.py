"""Learn the bundled refiner, measure all methods on all cells, and write docs/arena.md: `python -m benchmarks.arena`.

- `learn` writes one refiner per left-out data set and one of all data sets, from held-out images.
- `measure` scores methods on test images, and with `--part shifted` on test images of other kinds than the fitted ones.
  Methods whose packages are not installed are left out. Cells and methods that
  are already in the folder of the run are not measured again.
- `record` joins the scores of all methods in benchmarks/results/arena.json. Cells that are not in the folder of the run
  keep their entries.
- `page` writes docs/arena.md and its bar charts from the record.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from benchmarks import machine
from benchmarks.arena import learning, measuring
from benchmarks.arena.cells import CELLS, KINDS, OF_IMAGES, SHIFTED
from benchmarks.arena.methods import GUIDED, METHODS, RANKSEG, TUNED, USUAL
from benchmarks.arena.page import PAGE, RECORD, entry_of, write_page
from benchmarks.report import write_record
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.model_file import write_refiner

NEEDS = {USUAL: "pydensecrf", TUNED: "pydensecrf", GUIDED: "cv2", RANKSEG: "rankseg"}
TOGETHER = tuple(name for name in METHODS if name.startswith("Refiner.fit, all images"))  # of one fit
SHIPPED = Path(__file__).parents[2] / "src/locpmap/refining/bundled.safetensors"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Data = Annotated[Path, typer.Option(help="Folder of the data sets.")]
Networks = Annotated[Path, typer.Option(help="Folder of the networks of benchmarks.networks, one folder each.")]
Work = Annotated[Path, typer.Option(help="Folder of the run, from which it resumes.")]
Processes = Annotated[int, typer.Option(help="Number of processes.")]
Choice = Annotated[list[str] | None, typer.Option(help="Only these; all by default.")]


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


@app.command()
def learn(data: Data, networks: Networks, work: Work, processes: Processes = 2, seed: int = 0) -> None:
    """Learn the bundled refiner, and one without each data set, to judge it on that data set."""
    folder = work / "weights"
    folder.mkdir(parents=True, exist_ok=True)
    with _pool(processes) as pool:
        waiting = {cell: pool.submit(learning.tables_of, cell, data, networks, work) for cell in OF_IMAGES}
        tables = {cell: one.result() for cell, one in track(waiting.items(), "candidates")}
        runs: dict[str | None, Any] = {}
        for without in (None, *dict.fromkeys(cell.dataset for cell in OF_IMAGES)):
            chosen = [learning.best_setting(tables, stride, without) for stride in learning.STRIDES]
            typer.echo(f"without {without}: {chosen}")
            runs[without] = pool.submit(learning.learned, chosen, data, networks, work, without, seed)
        for without, one in track(runs.items(), "error fields"):
            names = dict.fromkeys(cell.dataset for cell in OF_IMAGES if cell.dataset != without)
            details = {
                "data": ", ".join(names),
                "command": machine.provenance("benchmarks.arena", seed, {})["command"],
                "seed": seed,
                "locpmap": machine.git_version(),
            }
            name = "all" if without is None else f"without-{without}"
            write_refiner(folder / f"{name}.safetensors", one.result(), details, AS_LEARNED, None)


@app.command()
def measure(
    data: Data,
    networks: Networks,
    work: Work,
    part: Annotated[str, typer.Option(help="test, shifted, or held_out for a trial.")] = "test",
    method: Choice = None,
    cell: Choice = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of images of a cell.")] = None,
    processes: Processes = 2,
) -> None:
    """Score methods on test images, in parallel over cells and methods."""
    names = [name for name in method or METHODS if name not in NEEDS or find_spec(NEEDS[name])]
    cells = [one for one in CELLS if cell is None or str(one) in cell]
    if part == SHIFTED:
        cells = [one for one in cells if one.dataset in KINDS]
    with _pool(processes) as pool:
        alone = [[name] for name in names if name not in TOGETHER]
        waiting = [
            pool.submit(measuring.measure, one, group, part, data, networks, work, limit)
            for group in [[name for name in names if name in TOGETHER], *alone]
            for one in cells
        ]
        for done in track(waiting, "cells"):
            done.result()


@app.command()
def record(work: Work, part: str = "test", output: Path = RECORD) -> None:
    """Join the scores of all methods in the record."""
    earlier = json.loads(output.read_text()) if output.exists() else {}
    found = {
        table: _entries(work, which, earlier.get(table, {})) for table, which in (("cells", part), (SHIFTED, SHIFTED))
    }
    write_record(output, {"part": part, **found}, [])


def _entries(work: Path, part: str, earlier: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a run, with its command and versions, and earlier ones of other cells."""
    origin, found = machine.provenance("benchmarks.arena", 0, machine.machine()), {}
    for one in CELLS:
        paths = {name: measuring.path_of(work, part, one, name) for name in METHODS}
        rows = {name: measuring.Row(path) for name, path in paths.items() if path.exists()}
        if rows:
            found[str(one)] = entry_of(one, rows) | {"origin": origin}
        elif str(one) in earlier:
            found[str(one)] = earlier[str(one)]
    return found


@app.command()
def page(source: Path = RECORD, output: Path = PAGE) -> None:
    """Write the page and its bar charts."""
    write_page(json.loads(source.read_text()), output)


if __name__ == "__main__":
    app()
