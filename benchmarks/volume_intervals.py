"""Intervals of volumes of sampled label maps, on the test volumes of `benchmarks.volume_network`.

``python -m benchmarks.volume_intervals measure FOLDER`` fits a refiner per fold on its held-out volumes, and draws
label maps of its test volumes. Over all folds, it compares them with independent voxels, by the CRPS of volumes and
surfaces and by the coverage of their 90 % intervals. With ``--record``, the results join
benchmarks/results/volumes.json, from which ``python -m benchmarks.volume_intervals page`` writes docs/volumes.md.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.refining_page import filled, origins, table
from benchmarks.report import join_record
from benchmarks.volume_network import Volume, read_volumes
from locpmap.learning.proper_scores import crps
from locpmap.measuring.quantities import named_quantity
from locpmap.refining.map_scores import covered
from locpmap.refining.model_file import VOLUMES
from locpmap.refining.scoring import METRICS, difference, score, softmax
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "benchmarks/results/volumes.json", ROOT / "docs/volumes.md"
DATASET, STACK = "hippocampus", "membranes"  # the second one by benchmarks.volume_membranes
N_SAMPLES = 39  # positions q · (M + 1) of the quantiles are whole numbers
QUANTITIES = ("volume", "surface")
SOFTMAX, SCALED, BUNDLED, FITTED = "softmax", "temperature scaling", "lp.refine, bundled", "lp.refine, fitted"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def scored(one: Volume, fitted: Weights, seed: int) -> dict[str, Any]:
    """Measure one volume in its true labels and in samples of every kind, and score the probabilities."""
    truth, logits, reading = one.labels.astype(np.int64), np.asarray(one.logits, np.float32), reading_of(one)
    found: dict[str, Any] = {"values": {}, "pixels": {}}
    for kind, scale in {SOFTMAX: 1.0, SCALED: float(fitted.scales[0])}.items():
        z = np.float32(scale) * logits
        potentials = lp.Potentials.volume(z, 0.0, spacing=one.spacing)
        result = lp.infer(potentials, lp.LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True), seed=seed)
        found["values"][kind] = {name: lp.measure(result, name).values for name in QUANTITIES}
        found["pixels"][kind] = score(softmax(z), truth)
    for kind, refiner in {BUNDLED: lp.Refiner.load(), FITTED: lp.Refiner(fitted, {VOLUMES: True})}.items():
        decoder = lp.LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True)
        result = refiner.refine(one.scan.astype(np.float32), logits, decoder=decoder, seed=seed, **reading)
        found["values"][kind] = {name: lp.measure(result, name).values for name in QUANTITIES}
        found["pixels"][kind] = score(np.asarray(result.probability), truth, np.asarray(result.labels))
    structure = potentials.structure
    found["truth"] = {name: named_quantity(name, structure, z.shape[-1])(truth) for name in QUANTITIES}
    return found


def reading_of(one: Volume) -> dict[str, Any]:
    """Return the options with which a refiner reads a volume."""
    return {"layout": "dhwk", "scores": "logits", "stride": 1.0, "spacing": one.spacing}


def row_of(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the coverage and the CRPS of every quantity, over all volumes: of all labels, and of each of them."""
    row: dict[str, Any] = {}
    for name in QUANTITIES:
        values = np.stack([one["values"][kind][name] for one in found], axis=1)  # (M, n, K)
        truth = np.stack([one["truth"][name] for one in found])
        everywhere = np.ones(len(truth), bool)
        inside = [covered(values[..., k], truth[:, k], everywhere) for k in range(truth.shape[1])]
        low, high = np.quantile(values, (0.05, 0.95), axis=0, method="weibull")
        row[name] = {
            "coverage": float(np.mean(inside)),
            "coverage by label": inside,
            "crps": float(crps(values, truth).mean()),
            "crps by label": crps(values, truth).mean(axis=0).tolist(),
            "width": float((high - low).mean()),
            "mean error": (values.mean(axis=0) - truth).mean(axis=0).tolist(),
        }
    return row


@app.command()
def measure(
    folder: Annotated[Path, typer.Argument(help="Folder that benchmarks.volume_network wrote.")],
    limit: Annotated[int | None, typer.Option(help="Maximum number of volumes of a part, for a smoke run.")] = None,
    processes: int = 2,
    seed: int = 0,
    record: Annotated[bool, typer.Option(help="Add the results to the record.")] = False,
) -> None:
    """Fit on the held-out volumes of every fold, and score samples of its test volumes."""
    found: list[dict[str, Any]] = []
    folds: list[dict[str, Any]] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for fold in sorted(folder.glob("fold-*")):
            held_out, test = (read_volumes(fold / f"{part}.npz")[:limit] for part in ("held_out", "test"))
            refiner = lp.Refiner.fit(
                [one.scan.astype(np.float32) for one in held_out],
                [np.asarray(one.logits, np.float32) for one in held_out],
                [one.labels for one in held_out],
                seed=seed,
                **reading_of(held_out[0]) | {"spacing": [one.spacing for one in held_out]},
            )
            typer.echo(str(refiner.report))
            waiting = [pool.submit(scored, each, refiner.weights, seed) for each in test]
            found += [one.result() for one in waiting]
            folds.append({"held_out": len(held_out), "learned": as_lists(refiner.weights)})
            folds[-1]["network"] = json.loads((fold / "log.json").read_text())
    rows = {kind: row_of(found, kind) for kind in found[0]["values"]}
    pixels = {kind: [one["pixels"][kind] for one in found] for kind in found[0]["pixels"]}
    gains = {
        kind: {name: list(difference(pixels[kind], pixels[SCALED], metric)) for name, metric in METRICS.items()}
        for kind in (BUNDLED, FITTED)
    }
    typer.echo(json.dumps({"rows": rows, "pixels": gains}, indent=1))
    if record:
        held_out_sizes = "/".join(str(one["held_out"]) for one in folds)
        about = {"volumes": len(found), "held_out": held_out_sizes, "samples": N_SAMPLES, "folds": folds}
        origin = machine.provenance("benchmarks.volume_intervals", seed, machine.machine())
        join_record(RECORD, DATASET, about | {"rows": rows, "pixels": gains, "origin": origin})


def as_lists(weights: Weights) -> dict[str, Any]:
    """Return weights as lists that JSON can represent."""
    return {name: np.asarray(getattr(weights, name)).tolist() for name in Weights.__dataclass_fields__}


def changes(gains: dict[str, Any], metrics: Iterable[str]) -> list[str]:
    """Return the changes of metrics with their standard errors."""
    return ["{:+.4f} ± {:.4f}".format(*gains[name]) for name in metrics]


def tables_of(record: dict[str, Any]) -> dict[str, str]:
    """Return the tables of docs/volumes.md by name."""
    rows, one = record[DATASET]["rows"], record[DATASET]
    heads = ("", "coverage of volumes", "CRPS of volumes", "coverage of surfaces", "CRPS of surfaces")
    return {
        "intervals": table(
            heads,
            (
                (kind, *(cell for q in QUANTITIES for cell in (f"{row[q]['coverage']:.0%}", f"{row[q]['crps']:.1f}")))
                for kind, row in rows.items()
            ),
        ),
        "probabilities": table(
            ("", *METRICS),
            ((kind, *changes(gains, METRICS)) for kind, gains in one["pixels"].items()),
        ),
        "sections": table(
            ("", "IoU", "NLL", "coverage of volumes", "coverage of surfaces"),
            (
                (kind, *changes(row["gains"], ("IoU", "NLL")), *(f"{row[q]['coverage']:.0%}" for q in QUANTITIES))
                for kind, row in record[STACK]["rows"].items()
            ),
        ),
        "origin": origins({name: record[name] for name in (DATASET, STACK)}, "volumes", "held_out"),
    }


@app.command()
def page() -> None:
    """Write the tables of docs/volumes.md."""
    PAGE.write_text(filled(PAGE.read_text(), tables_of(json.loads(RECORD.read_text()))))


if __name__ == "__main__":
    app()
