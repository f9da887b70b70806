"""Slices or a volume? Refine a stack of electron micrographs (ISBI 2012, voxels of 50 × 4 × 4 nm) in both ways.

``python -m benchmarks.volume_membranes --data DATA --networks FOLDER`` applies a 2-D network of `benchmarks.networks`
to every section. It fits refiners of slices and of volumes on the held-out sections, and refines the test sections with
both. Blocks of 128 × 128 pixels with all sections are the units of the fits, of measurements and of jackknife errors.
With ``--record``, the results join benchmarks/results/volumes.json (see `benchmarks.volume_intervals`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.networks_data import Part, load
from benchmarks.networks_models import open_network, predict
from benchmarks.report import join_record
from benchmarks.volume_intervals import N_SAMPLES, QUANTITIES, RECORD, SCALED, STACK, row_of
from locpmap.graphs import Volume
from locpmap.measuring.quantities import named_quantity
from locpmap.refining.scoring import METRICS, difference, score, softmax, total

Array = npt.NDArray[Any]
SPACING, MICRON = (50.0, 4.0, 4.0), 1e-3  # sides of a voxel in nm; 1 nm in µm
SIDE = 128  # of a block, in pixels


def stack_of(part: Part, network: Any) -> tuple[Array, Array, Array]:
    """Return grey values (D, H, W), logits (D, H, W, 2) and true labels (D, H, W) of consecutive sections."""
    grey = np.stack([image[..., 0] for image in part.images])
    return grey, np.stack([predict(network, image) for image in part.images]), np.stack(part.labels)


def blocks(stack: Array) -> list[Array]:
    """Cut a stack (D, H, W, ..) into blocks of 128 × 128 pixels with all sections."""
    rows, columns = (range(0, n, SIDE) for n in stack.shape[1:3])
    return [stack[:, r : r + SIDE, c : c + SIDE] for r in rows for c in columns]


def refiners(scan: Array, logits: Array, labels: Array, seed: int) -> dict[str, tuple[lp.Refiner, dict[str, Any]]]:
    """Return the bundled refiner and those that were fitted on the blocks, with their options for a stack."""
    parts = [blocks(each) for each in (scan, logits, labels)]
    groups = np.repeat(np.arange(len(parts[0])), len(scan)).tolist()
    slices: dict[str, Any] = {"layout": "hwk", "scores": "logits", "stride": 1.0}
    volume = slices | {"layout": "dhwk", "spacing": SPACING}
    as_slices = [[one for block in part for one in block] for part in parts]
    in_2d = lp.Refiner.fit(*as_slices, groups=groups, seed=seed, **slices)
    in_3d = lp.Refiner.fit(*parts, seed=seed, **volume)
    typer.echo(f"{in_2d.report}\n{in_3d.report}")
    bundled = lp.Refiner.load()
    return {
        "slices, bundled": (bundled, slices),
        "volume, bundled": (bundled, volume),
        "slices, fitted": (in_2d, slices),
        "volume, fitted": (in_3d, volume),
    }


def measured(samples: Array, truth: Array) -> list[dict[str, Any]]:
    """Return the volume in µm³ and the surface in µm² of the membranes of every block, in samples and as true."""
    sides = tuple(side * MICRON for side in SPACING)
    structure = Volume(len(truth), SIDE, SIDE, spacing=sides)
    meters: dict[str, Callable[[Array], Array]] = {name: named_quantity(name, structure, 2) for name in QUANTITIES}
    found = []
    for true, *maps in zip(blocks(truth), *(blocks(sample) for sample in samples), strict=True):
        values = {name: np.stack([of(one.astype(np.int64))[1:] for one in maps]) for name, of in meters.items()}
        found.append({"values": values, "truth": {name: of(true)[1:] for name, of in meters.items()}})
    return found


def main(
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    networks: Annotated[Path, typer.Option(help="Folder that benchmarks.networks wrote.")],
    seed: int = 0,
    record: Annotated[bool, typer.Option(help="Add the results to the record.")] = False,
) -> None:
    """Fit on the held-out sections, and score the test sections."""
    split, network = load("membranes", data), open_network(networks / "member-0.safetensors")
    held_out, (scan, logits, truth) = (stack_of(part, network) for part in (split.held_out, split.test))
    ways, decoder = refiners(*held_out, seed), lp.LocPMAP(N_SAMPLES, start="perturbed", keep_samples=True)
    scaled = np.float32(ways["slices, fitted"][0].weights.scales[0]) * logits
    alone = lp.infer(lp.Potentials.volume(scaled, 0.0), decoder, seed=seed)
    found = {SCALED: (softmax(scaled), scaled.argmax(-1), alone.samples)}
    for kind, (refiner, reading) in ways.items():
        result = refiner.refine(scan, logits, decoder=decoder, seed=seed, **reading)
        found[kind] = (result.probability, result.labels, result.samples)
    pixels = {
        kind: [score(*each) for each in zip(blocks(p), blocks(truth), blocks(labels), strict=True)]
        for kind, (p, labels, _) in found.items()
    }
    rows: dict[str, Any] = {}
    for kind, (_, _, samples) in found.items():
        each = [{"values": {kind: one["values"]}, "truth": one["truth"]} for one in measured(samples, truth)]
        rows[kind] = row_of(each, kind) | {name: metric(total(pixels[kind])) for name, metric in METRICS.items()}
        rows[kind]["gains"] = {name: difference(pixels[kind], pixels[SCALED], m) for name, m in METRICS.items()}
    pairs = {which: (pixels[f"volume, {which}"], pixels[f"slices, {which}"]) for which in ("bundled", "fitted")}
    between = {which: {name: difference(*pair, m) for name, m in METRICS.items()} for which, pair in pairs.items()}
    fitted = {kind: way[0].report for kind, way in ways.items() if way[0].report is not None}
    held = {kind: {name: report.gain(name) for name in METRICS} for kind, report in fitted.items()}
    results = {"rows": rows, "volume - slices": between, "cross-validated": held}
    typer.echo(json.dumps(results, indent=1))
    if record:
        about = {"volumes": len(blocks(truth)), "held_out": len(blocks(held_out[0])), "network": networks.name}
        origin = machine.provenance("benchmarks.volume_membranes", seed, machine.machine())
        join_record(RECORD, STACK, about | results | {"origin": origin})


if __name__ == "__main__":
    typer.run(main)
