"""Spread of samples compared with several annotators: `python -m benchmarks.annotators DATASET --record`.

Photographs of BSDS500 have boundaries by five or more annotators, retinal photographs of CHASE_DB1 have vessels by two
observers. Samples should differ from each other as annotators do. Samples of `lp.refine`, bundled and fitted to
held-out images, are compared with independent pixels and with the network's own map:

- generalised energy distance ``2 E d(X, Y) - E d(X, X') - E d(Y, Y')`` of samples X and annotators Y, with the Jaccard
  distance d: lower is better
- diversity ``E d(X, X')``, compared with ``E d(Y, Y')``
- the fraction of annotators whose area and perimeter are in the 90 % interval of the samples

`benchmarks.fields_page` writes the table of docs/whole-maps.md.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.networks_data import load, second_observer
from benchmarks.networks_models import open_network, predict
from benchmarks.report import join_record
from locpmap.learning.proper_scores import jaccard_distance
from locpmap.measuring.quantities import named_quantity
from locpmap.refining.map_scores import covered

Array = npt.NDArray[Any]
ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks/results/annotators.json"
N_SAMPLES = 39  # positions q · (M + 1) of the quantiles are whole numbers
N_LABELS = 2
NETWORK, INDEPENDENT, BUNDLED, FITTED = "network", "independent pixels", "lp.refine, bundled", "lp.refine, fitted"
QUANTITIES = ("area", "perimeter")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def annotated(dataset: str, data: Path, part: str) -> Iterator[tuple[Array, list[Array]]]:
    """Yield the images of a part with the label maps of all their annotators."""
    chosen = getattr(load(dataset, data), part)
    if dataset == "vessels":
        for name, image, labels in zip(chosen.names, chosen.images, chosen.labels, strict=True):
            yield image, [labels, second_observer(data, name)]
        return
    triples = zip(chosen.names, chosen.images, chosen.labels, strict=True)
    for _, own in itertools.groupby(triples, lambda one: one[0].rpartition("_")[0]):
        pairs = [(image, labels) for _, image, labels in own]
        yield pairs[0][0], [labels for _, labels in pairs]


def mean_distance(first: Sequence[Array], second: Sequence[Array] | None = None) -> float:
    """Return the mean Jaccard distance over pairs of maps, of two sequences or of different maps of one."""
    pairs = itertools.combinations(first, 2) if second is None else itertools.product(first, second)
    return float(np.mean([jaccard_distance(a, b, N_LABELS) for a, b in pairs]))


def scored(samples: Array, truths: Sequence[Array], structure: Any) -> dict[str, float]:
    """Score the samples (M, H, W) of one image by the maps of its annotators."""
    maps, flat = ([one.ravel().astype(np.int64) for one in kind] for kind in (samples, truths))
    diversity = mean_distance(maps) if len(maps) > 1 else 0.0
    among = mean_distance(flat)
    found = {"distance": 2 * mean_distance(maps, flat) - diversity - among, "diversity": diversity, "annotators": among}
    for name in QUANTITIES:
        quantity = named_quantity(name, structure, N_LABELS)
        values, true = (np.stack([quantity(one.astype(np.int64)) for one in kind]) for kind in (samples, truths))
        inside = [covered(values, one, np.arange(N_LABELS) == 1) for one in true]
        found[f"coverage of {name}s"] = float(np.mean(inside))
    return found


def of_image(image: Array, truths: Sequence[Array], network: Path, fitted: lp.Refiner, seed: int) -> dict[str, Any]:
    """Score every kind of samples of one image."""
    logits = predict(open_network(network), image)
    decoder = lp.LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True)
    reading: dict[str, Any] = {"layout": "hwk", "scores": "logits", "stride": 1.0}
    scaled = lp.Potentials.grid(np.float32(fitted.weights.scales[0]) * logits, 0.0)
    kinds = {NETWORK: logits.argmax(-1)[None], INDEPENDENT: lp.infer(scaled, decoder, seed=seed).samples}
    for kind, refiner in {BUNDLED: lp.Refiner.load(), FITTED: fitted}.items():
        kinds[kind] = refiner.refine(image, logits, decoder=decoder, seed=seed, **reading).samples
    return {kind: scored(np.asarray(maps), truths, scaled.structure) for kind, maps in kinds.items()}


@app.command()
def measure(
    dataset: Annotated[str, typer.Argument(help="vessels or boundaries.")],
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    networks: Annotated[Path, typer.Option(help="Folder that benchmarks.networks wrote.")],
    part: Annotated[str, typer.Option(help="held_out, for a trial, or test.")] = "test",
    processes: int = 2,
    seed: int = 0,
    record: Annotated[bool, typer.Option(help="Add the results to the record.")] = False,
) -> None:
    """Fit a refiner to held-out images, then compare samples with all annotators of the test images."""
    network = networks / "member-0.safetensors"
    opened = open_network(network)
    held_out = list(annotated(dataset, data, "held_out"))
    logits = [predict(opened, image) for image, _ in held_out]
    rows = [
        (image, z, truth, n)
        for n, ((image, some), z) in enumerate(zip(held_out, logits, strict=True))
        for truth in some
    ]
    images, scores, labels, groups = map(list, zip(*rows, strict=True))
    fitted = lp.Refiner.fit(images, scores, labels, groups=groups, layout="hwk", scores="logits", stride=1.0, seed=seed)
    typer.echo(str(fitted.report))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(of_image, *one, network, fitted, seed) for one in annotated(dataset, data, part)]
        found = [one.result() for one in waiting]
    table = {
        kind: {name: float(np.mean([one[kind][name] for one in found])) for name in found[0][kind]} for kind in found[0]
    }
    gaps = [one[FITTED]["distance"] - one[INDEPENDENT]["distance"] for one in found]
    error = float(np.std(gaps, ddof=1) / np.sqrt(len(gaps)))
    typer.echo(json.dumps({"rows": table, "gain": [float(np.mean(gaps)), error]}, indent=1))
    if record:
        about = {"part": part, "images": len(found), "held_out": len(held_out), "rows": table}
        origin = machine.provenance("benchmarks.annotators", seed, machine.machine())
        join_record(RECORD, dataset, about | {"gain": [float(np.mean(gaps)), error], "origin": origin})


if __name__ == "__main__":
    app()
