"""Learn the bundled refiner and evaluate it: `python -m benchmarks.refining COMMAND`.

- `learn` writes src/locpmap/refining/scenes.safetensors from held-out scenes.
- `measure` compares it on test scenes with the network, the temperature-scaled network and pydensecrf2.
- `page` writes the tables of docs/refining.md from the record.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import machine
from benchmarks.refining_page import filled, tables_of
from benchmarks.refining_scenes import STRIDES, scenes_of
from benchmarks.report import write_record

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "src/locpmap/refining/scenes.safetensors"
RECORD = ROOT / "benchmarks/results/refining.json"
PAGE = ROOT / "docs/refining.md"
CACHE = ROOT / "out/refine"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Network = Annotated[Path, typer.Option(help="Network that was trained on the part 'fit' of the scenes.")]
Data = Annotated[Path, typer.Option(help="Folder of the data sets.")]
Limit = Annotated[int | None, typer.Option(help="Maximum number of scenes of each part.")]


@app.command()
def learn(network: Network, data: Data, limit: Limit = None, seed: int = 0, output: Path = SHIPPED) -> None:
    """Learn weights for strides 1, 8 and 16 from scenes that the network was not trained on."""
    from locpmap.refining.examples import gather
    from locpmap.refining.fitting import learn as learn_weights
    from locpmap.refining.fitting_samples import EACH, START
    from locpmap.refining.model_file import write_refiner
    from locpmap.refining.weights import Weights

    scenes = scenes_of("held_out", data, network, CACHE, limit)
    found = []
    for stride in STRIDES:
        logits = [scene.coarse(stride) for scene in scenes]
        images, labels = [scene.image for scene in scenes], [scene.labels for scene in scenes]
        examples = gather(images, logits, labels, -1, "hwk", "logits", stride)
        found.append(learn_weights(examples, seed, START, EACH))
        typer.echo(f"stride {stride}: {found[-1]}")
    joint = {
        name: np.concatenate([getattr(w, name) for w in found])
        for name in ("scales", "own", "guided", "pairwise", "shared", "presence", "sizes", "noise", "votes")
    }
    typical = np.mean([w.typical for w in found], axis=0)
    details = {
        "data": "Stanford Background",
        "scenes": len(scenes),
        "command": "python -m benchmarks.refining learn " + " ".join(Path(arg).name for arg in sys.argv[2:]),
        "seed": seed,
        "locpmap": machine.git_version(),
    }
    write_refiner(output, Weights(np.array(STRIDES, float), typical=typical, **joint), details, None)
    typer.echo(f"written to {output}")


@app.command()
def measure(
    network: Network,
    data: Data,
    limit: Limit = None,
    area_limit: Annotated[int, typer.Option(help="Number of test scenes for the table of areas; 0 skips it.")] = 115,
    seed: int = 0,
    output: Path = RECORD,
) -> None:
    """Measure on test scenes and record the tables; rows of pydensecrf2 need it to be installed."""
    from benchmarks.refining_measures import areas, seconds
    from locpmap.refining.refiner import Refiner

    dense = find_spec("pydensecrf") is not None
    record: dict[str, Any] = {
        **machine.provenance("benchmarks.refining", seed, machine.machine()),
        "refiner": Refiner.load().details,
        "left_out": {} if dense else {"pydensecrf2": "it is not installed"},
    }
    if dense:
        record["speed"] = seconds(seed)
    held_out, test = (scenes_of(part, data, network, CACHE, limit) for part in ("held_out", "test"))
    record["scenes"] = {"held_out": len(held_out), "test": len(test), "areas": min(area_limit, len(test))}
    with ProcessPoolExecutor(len(STRIDES)) as pool:
        waiting = [pool.submit(_compared, network, data, limit, stride, seed, dense) for stride in STRIDES]
        record["strides"] = {str(stride): one.result() for stride, one in zip(STRIDES, waiting, strict=True)}
    write_record(output, record, [])
    if area_limit:
        record["areas"] = {str(stride): areas(held_out, test[:area_limit], stride, seed) for stride in STRIDES}
        write_record(output, record, [])
    typer.echo(f"recorded in {output}")


def _compared(network: Path, data: Path, limit: int | None, stride: int, seed: int, dense: bool) -> dict[str, Any]:
    """Compare all methods at one stride, in a separate process."""
    from benchmarks.refining_measures import compare

    held_out, test = (scenes_of(part, data, network, CACHE, limit) for part in ("held_out", "test"))
    return compare(held_out, test, stride, seed, dense=dense)


@app.command()
def speed(seed: int = 0, output: Path = RECORD) -> None:
    """Measure the times again and replace them in the record; needs pydensecrf2."""
    from benchmarks.refining_measures import seconds

    record = json.loads(output.read_text())
    origin = machine.provenance("benchmarks.refining", seed, machine.machine())
    write_record(output, record | {"speed": seconds(seed) | {"origin": origin}}, [])


@app.command()
def page(record: Path = RECORD, output: Path = PAGE) -> None:
    """Write the tables of docs/refining.md from the record."""
    from locpmap.refining.refiner import Refiner

    tables = tables_of(json.loads(record.read_text()), Refiner.load().weights)
    output.write_text(filled(output.read_text(), tables))


if __name__ == "__main__":
    app()
