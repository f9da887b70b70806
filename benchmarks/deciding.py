"""Decisions for IoU and Dice compared with the argmax, RankSEG and pydensecrf2, on images of `benchmarks.networks`.

``python -m benchmarks.deciding DATASET --data DATA --networks FOLDER --work WORK`` decides labels from the
probabilities of the first network, temperature scaled, and from those of `lp.refine`, with the weights that
`benchmarks.fields` learned on held-out images. All methods read the same probabilities. pydensecrf2 is tuned on eight
held-out images. An interrupted run resumes from the files in WORK. With ``--record``, the table joins
benchmarks/results/deciding.json, from which `benchmarks.deciding_page` writes docs/deciding.md. RankSEG and pydensecrf2
must be importable.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.deciding_page import (
    ARGMAX,
    DENSE,
    DICE,
    HELD_OUT,
    IMAGE,
    NETWORK,
    RANKSEG,
    RECORD,
    REFINED,
    SAMPLED,
    TEST,
)
from benchmarks.dense import GRID, Dense
from benchmarks.fields_page import fitted_weights
from benchmarks.networks_data import Part, load
from benchmarks.networks_models import open_network, predict
from benchmarks.report import join_record
from locpmap.deciding import decide
from locpmap.refining.decided import Gain
from locpmap.refining.scoring import confusion, score, softmax
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
N_HELD_OUT = 32  # images whose statistics decide for others
N_TUNING = 8
MEASURES = ("IoU over the data set", "IoU per image", "Dice per image", "accuracy")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


class Read(NamedTuple):
    """Inputs of the methods for one image: probabilities and samples by source, labels by method, and true labels."""

    probability: dict[str, Array]
    samples: dict[str, Array]
    labels: dict[str, Array]
    truth: Array


def as_colours(image: Array) -> npt.NDArray[np.uint8]:
    """Return an image as RGB in 8 bits, for pydensecrf2."""
    if image.dtype == np.uint8:
        return image
    low, high = float(image.min()), float(image.max())
    grey = (255 * (image - low) / (high - low)).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=-1)


def tuned(part: Part, logits: Sequence[Array]) -> Dense:
    """Return the settings of pydensecrf2 with the highest IoU on held-out images."""

    def iou(setting: Dense) -> float:
        maps = [setting(as_colours(image), z).argmax(-1) for image, z in zip(part.images, logits, strict=True)]
        found = [score(np.eye(z.shape[-1])[m], t) for m, z, t in zip(maps, logits, part.labels, strict=True)]
        return sum(found[1:], start=found[0]).iou

    return max(GRID, key=iou)


def read(part: Part, folder: Path, network: Any, weights: Weights, dense: Dense | None) -> Iterator[Read]:
    """Yield what methods read of every image; files in the folder are read again."""
    folder.mkdir(parents=True, exist_ok=True)
    scale, refiner = np.float32(weights.scales[0]), lp.Refiner(weights)
    for n, (image, truth) in enumerate(zip(part.images, part.labels, strict=True)):
        path = folder / f"{n:03d}.npz"
        if not path.exists():
            logits = predict(network, image)
            decoder = lp.LocPMAP(start="perturbed", keep_samples=True)
            result = refiner.refine(image, logits, layout="hwk", scores="logits", stride=1.0, decoder=decoder)
            found = {"network": softmax(scale * logits), "refined": result.probability, "labels": result.labels}
            if dense is not None:
                found["dense"] = dense(as_colours(image), scale * logits).argmax(-1)
            halves: dict[str, Any] = {name: np.asarray(values, np.float16) for name, values in found.items()}
            halves["samples"] = np.asarray(result.samples, np.int16)
            np.savez(path.with_suffix(".part.npz"), **halves)
            path.with_suffix(".part.npz").rename(path)
        with np.load(path) as stored:
            probability = {NETWORK: _normalised(stored["network"]), REFINED: _normalised(stored["refined"])}
            samples = {REFINED: stored["samples"]}
            labels = {REFINED: stored["labels"].astype(np.int64)}
            if "dense" in stored:
                labels[DENSE] = stored["dense"].astype(np.int64)
        yield Read(probability, samples, labels, truth)


def _normalised(half: Array) -> Array:
    p = half.astype(np.float32)
    return p / p.sum(-1, keepdims=True)


@cache
def rankseg(measure: str) -> Callable[[Array], Array]:
    """Return RankSEG for a measure, with its default options."""
    import torch
    from rankseg import RankSEG

    solver = RankSEG(metric=measure)

    def run(p: Array) -> Array:
        return np.asarray(solver(torch.from_numpy(p).movedim(-1, 0)[None])[0].numpy())

    return run


def methods(
    p: Array, argmax: Array, samples: Array | None, held_out: lp.Decider, test: lp.Decider
) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Yield all decisions from the same probabilities."""
    yield ARGMAX, lambda: p.argmax(-1)
    yield IMAGE, lambda: np.asarray(decide(argmax, p, "iou").labels)
    if samples is not None:
        yield SAMPLED, lambda: np.asarray(decide(argmax, p, "iou", samples=samples).labels)
    yield DICE, lambda: np.asarray(decide(argmax, p, "dice").labels)
    yield HELD_OUT, lambda: np.asarray(decide(argmax, p, "iou", over=held_out).labels)
    yield TEST, lambda: np.asarray(decide(argmax, p, "iou", over=test).labels)
    for measure in ("IoU", "Dice"):
        yield f"{RANKSEG}, {measure}", lambda measure=measure: rankseg(measure)(p)  # type: ignore[misc]


def compared(new: Sequence[Array], old: Sequence[Array]) -> dict[str, list[float]]:
    """Return the difference (new - old) of every measure, with its jackknife standard error over images."""
    triples = list(zip(old, new, new, strict=True))
    iou, dice = (Gain(measure, triples).values() for measure in ("iou", "dice"))
    (_, image, image_error), (_, data, data_error) = iou.values()
    _, dice_change, dice_error = dice["per image"]
    right = [(np.trace(a), np.trace(b), a.sum()) for a, b in zip(new, old, strict=True)]
    whole = np.sum(right, axis=0)
    without = [(whole - one) for one in map(np.array, right)]
    shares = np.array([(a - b) / n for a, b, n in without])
    error = float(np.sqrt((len(shares) - 1) * np.var(shares)))
    numbers = [(data, data_error), (image, image_error), (dice_change, dice_error)]
    numbers.append((float((whole[0] - whole[1]) / whole[2]), error))
    return {name: list(pair) for name, pair in zip(MEASURES, numbers, strict=True)}


def values_of(found: Sequence[Array]) -> dict[str, float]:
    """Return every measure of one method."""
    triples = [(one, one, one) for one in found]
    iou, dice = (Gain(measure, triples).values() for measure in ("iou", "dice"))
    whole = sum(found)
    numbers = (iou["over the data set"][0], iou["per image"][0], dice["per image"][0])
    return dict(zip(MEASURES, (*numbers, float(np.trace(whole) / np.sum(whole))), strict=True))


@app.command()
def measure(
    dataset: str,
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    networks: Annotated[Path, typer.Option(help="Folder that benchmarks.networks wrote.")],
    work: Annotated[Path, typer.Option(help="Folder for probabilities, from which a run resumes.")],
    part: Annotated[str, typer.Option(help="held_out or test.")] = "test",
    n_images: Annotated[int, typer.Option(help="Maximum number of images.")] = 100,
    record: Annotated[bool, typer.Option(help="Add the table to the record.")] = False,
) -> None:
    """Decide labels of every image by every method."""
    import torch

    torch.set_num_threads(1)
    split, weights = load(dataset, data), fitted_weights(dataset)
    network = open_network(networks / "member-0.safetensors")
    tuning = split.held_out.some(N_TUNING)
    dense = tuned(tuning, [np.float32(weights.scales[0]) * predict(network, image) for image in tuning.images])
    deciders = {(source, kind): lp.Decider("iou") for source in (NETWORK, REFINED) for kind in (HELD_OUT, TEST)}
    chosen: Part = getattr(split, part).some(n_images)
    others, own = work / dataset / "held_out", work / dataset / part
    for kind, images, folder, last in (
        (HELD_OUT, split.held_out.some(N_HELD_OUT), others / "statistics", None),
        (TEST, chosen, own, dense),
    ):
        for one in read(images, folder, network, weights, last):
            for source, p in one.probability.items():
                deciders[source, kind].add(p)
    found: dict[str, list[Array]] = {}
    clocks: dict[str, list[float]] = {}
    for one in read(chosen, own, network, weights, dense):
        n_labels = one.probability[NETWORK].shape[-1]
        for source, p in one.probability.items():
            both = deciders[source, HELD_OUT], deciders[source, TEST]
            for name, run in methods(p, p.argmax(-1), one.samples.get(source), *both):
                began = time.perf_counter()
                labels = run()
                clocks.setdefault(name, []).append(time.perf_counter() - began)
                found.setdefault(f"{source}: {name}", []).append(confusion(labels, one.truth, n_labels))
        for name, labels in one.labels.items():
            found.setdefault(name, []).append(confusion(labels, one.truth, n_labels))
    base = f"{NETWORK}: {ARGMAX}"
    rows = {name: {"values": values_of(each), "gains": compared(each, found[base])} for name, each in found.items()}
    versus = {
        f"{ours} - {rival}": compared(found[ours], found[rival])
        for source in (NETWORK, REFINED)
        for ours in (f"{source}: {IMAGE}", f"{source}: {DICE}", f"{source}: {HELD_OUT}")
        for rival in (f"{source}: {RANKSEG}, IoU", f"{source}: {RANKSEG}, Dice", DENSE, f"{source}: {ARGMAX}")
    }
    seconds = {name: float(np.median(each)) for name, each in clocks.items()}
    for name, row in rows.items():
        typer.echo(f"{name}: {json.dumps(row['gains'])}")
    typer.echo(json.dumps(seconds))
    if record:
        origin = machine.provenance("benchmarks.deciding", 0, machine.machine())
        about = {"part": part, "images": len(chosen.images), "dense": dense.__dict__}
        entry = about | {"rows": rows, "versus": versus, "seconds": seconds, "origin": origin}
        join_record(RECORD, dataset, entry)


if __name__ == "__main__":
    app()
