"""Coverage and width of guaranteed intervals and label sets, on test images of `benchmarks.networks`.

``python -m benchmarks.guarantees DATASET --data DATA --networks FOLDER --record`` measures all test images with the
refiner that `benchmarks.fields` recorded, which was fitted on held-out images. Then it splits the test images 200 times
at random into calibration and new images. The rival is split conformal prediction on the argmax map of the network:
its area ± the conformal quantile of the absolute errors of the label. `benchmarks.guarantees_page` writes the tables.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.fields_page import fitted_weights
from benchmarks.guarantees_page import RECORD
from benchmarks.networks_data import Part, load
from benchmarks.networks_models import open_network, predict
from benchmarks.report import join_record
from locpmap.guarantees.conformal import conformal_quantile, controlled
from locpmap.guarantees.intervals import Calibration, Moments
from locpmap.guarantees.thresholds import THRESHOLDS
from locpmap.measuring.quantities import named_quantity
from locpmap.refining.examples import VOID, gather
from locpmap.refining.guaranteeing import QUANTITIES, measured
from locpmap.refining.model import AS_LEARNED
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
LEVEL, N_SPLITS = 0.9, 200
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


class Image(NamedTuple):
    """What the splits need of one image: per quantity, arrays (K,); and the fraction of missed labels by threshold."""

    mean: Array  # (Q, K)
    std: Array
    truth: Array
    argmax: Array  # the quantities of the network's label map
    n_pixels: int
    misses: Array
    set_sizes: Array  # mean number of labels above each threshold


def measured_image(weights: Weights, network: Path, image: Array, truth: Array, seed: int) -> Image:
    """Measure one image."""
    logits = predict(open_network(network), image)
    (example,) = gather([image], [logits], [truth], -1, "hwk", "logits", 1.0)
    found = measured(example, weights, AS_LEARNED, QUANTITIES, seed)
    mean, std, true = (np.stack(part) for part in zip(*found.quantities, strict=True))
    network_labels = np.where(truth == VOID, VOID, logits.argmax(-1).astype(np.int64))
    structure, n_labels = lp.Potentials.grid(logits, 0.0).structure, logits.shape[-1]
    own = [named_quantity(str(name), structure, n_labels)(network_labels) for name in QUANTITIES]
    result = lp.Refiner(weights).refine(image, logits, layout="hwk", scores="logits", stride=1.0, seed=seed)
    p = np.sort(np.asarray(result.probability)[truth != VOID], axis=None)
    n_pixels = int((truth != VOID).sum())
    sizes = (p.size - np.searchsorted(p, THRESHOLDS)) / n_pixels
    return Image(mean, std, true, np.stack(own).astype(float), n_pixels, found.misses, np.maximum(sizes, 1))


@dataclass(frozen=True)
class Outcome:
    """Whether intervals contain the true values, and their widths, over new images and labels: (n, K) each."""

    inside: Array
    width: Array

    @classmethod
    def of(cls, low: Array, high: Array, truth: Array) -> "Outcome":
        """Compare intervals with true values."""
        return cls((low <= truth) & (truth <= high), high - low)


def split(images: list[Image], quantity: int, jointly: bool, rng: np.random.Generator) -> dict[str, float]:
    """Calibrate on a random half of the images, and score the intervals of the other half."""
    order = rng.permutation(len(images))
    old, new = ([images[k] for k in part] for part in np.array_split(order, 2))
    mean, std, truth, argmax = (np.stack([getattr(one, name)[quantity] for one in old]) for name in Image._fields[:4])
    calibration = Calibration(Moments(mean, std), truth)
    most = np.array([one.n_pixels if quantity == 0 else np.inf for one in new])[:, None]
    true = np.stack([one.truth[quantity] for one in new])
    found = [calibration.interval(Moments(one.mean[quantity], one.std[quantity]), LEVEL, jointly) for one in new]
    low, high = (np.stack(ends) for ends in zip(*found, strict=True))
    ours = Outcome.of(np.maximum(low, 0), np.minimum(high, most), true)
    errors = np.abs(truth - argmax)
    if jointly:
        half: Any = conformal_quantile(errors.max(axis=1), LEVEL)
    else:
        half = np.array([conformal_quantile(column, LEVEL) for column in errors.T])
    centre = np.stack([one.argmax[quantity] for one in new])
    plain = Outcome.of(np.maximum(centre - half, 0), np.minimum(centre + half, most), true)
    occurs = np.stack([one.std[quantity] > 0 for one in new])
    size = np.stack([one.mean[quantity] for one in new])
    row = {"n_calibration": len(old), "width": float(ours.width.mean()), "width, argmax": float(plain.width.mean())}
    for name, outcome in {"": ours, ", argmax": plain}.items():
        inside = outcome.inside.all(axis=1, keepdims=True) if jointly else outcome.inside
        row[f"coverage{name}"] = float(inside.mean())
        if not jointly:
            row[f"coverage of occurring labels{name}"] = float(outcome.inside[occurs].mean())
            ends = np.quantile(size[occurs], [0, 1 / 3, 2 / 3, 1])
            for k, (a, b) in enumerate(pairwise(ends)):
                third = occurs & (size >= a) & (size <= b)
                row[f"tercile {k}{name}"] = float(outcome.inside[third].mean())
            for k, value in enumerate(outcome.inside.mean(axis=0)):
                row[f"label {k}{name}"] = float(value)
    return row


def split_sets(images: list[Image], rng: np.random.Generator) -> dict[str, float]:
    """Calibrate label sets on a random half of the images, and score those of the other half."""
    order = rng.permutation(len(images))
    old, new = ([images[k] for k in part] for part in np.array_split(order, 2))
    allowed = controlled(np.mean([one.misses for one in old], axis=0), len(old), 1 - LEVEL)
    place = int(np.flatnonzero(allowed)[-1])  # of the largest threshold
    covered, size = 1 - np.mean([one.misses[place] for one in new]), np.mean([one.set_sizes[place] for one in new])
    return {"coverage": float(covered), "labels": float(size)}


def summarised(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return means over the splits and, for coverages, the standard deviations; the lowest label and tercile."""
    found: dict[str, Any] = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    for suffix in ("", ", argmax"):
        for part in ("label", "tercile"):
            values = [
                found.pop(name)
                for name in list(found)
                if name.startswith(f"{part} ") and name.endswith(suffix) and ("argmax" in name) == bool(suffix)
            ]
            if values:
                found[f"lowest {part}{suffix}"] = min(values)
                found[f"mean {part}{suffix}"] = float(np.mean(values))
    found["sd of coverage"] = float(np.std([row["coverage"] for row in rows]))
    return found


@app.command()
def measure(
    dataset: str,
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    networks: Annotated[Path, typer.Option(help="Folder that benchmarks.networks wrote.")],
    part: Annotated[str, typer.Option(help="held_out or test.")] = "test",
    n_images: Annotated[int, typer.Option(help="Maximum number of images.")] = 240,
    processes: int = 2,
    seed: int = 0,
    record: Annotated[bool, typer.Option(help="Add the table to the record.")] = False,
) -> None:
    """Measure all images, then split them again and again."""
    weights = fitted_weights(dataset)
    chosen: Part = getattr(load(dataset, data), part).some(n_images)
    network = networks / "member-0.safetensors"
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(measured_image, weights, network, image, truth, seed)
            for image, truth in zip(chosen.images, chosen.labels, strict=True)
        ]
        with typer.progressbar(waiting, label="images") as bar:
            images = [one.result() for one in bar]
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for number, name in enumerate(QUANTITIES):
        for jointly in (False, True):
            rows = [split(images, number, jointly, rng) for _ in range(N_SPLITS)]
            found[f"{name}, jointly" if jointly else str(name)] = summarised(rows)
    found["label sets"] = summarised([split_sets(images, rng) for _ in range(N_SPLITS)])
    for name, row in found.items():
        typer.echo(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in row.items()))
    if record:
        origin = machine.provenance("benchmarks.guarantees", seed, machine.machine())
        about = {"part": part, "images": len(images), "splits": N_SPLITS, "level": LEVEL}
        join_record(RECORD, dataset, about | {"rows": found, "origin": origin})


if __name__ == "__main__":
    app()
