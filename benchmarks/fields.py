"""Samples with error fields compared with other samples, on images of `benchmarks.networks`.

``python -m benchmarks.fields DATASET --data DATA --networks FOLDER`` scores samples of the first network of the folder:
coverage and CRPS of areas in windows, of components and perimeters, and the energy score of whole maps. The weights of
"fitted" are learned on held-out images, and so is the size of "one offset". With ``--record``, the table joins
benchmarks/results/fields.json, from which `benchmarks.fields_page` writes docs/whole-maps.md.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import locpmap as lp
from benchmarks import machine
from benchmarks.fields_page import RECORD
from benchmarks.networks_data import Part, load
from benchmarks.networks_models import StochasticNetwork, draw, open_network, predict
from benchmarks.report import join_record
from locpmap.refining.examples import gather
from locpmap.refining.fitting import learn
from locpmap.refining.fitting_samples import drawn
from locpmap.refining.map_scores import map_score, mean_scores
from locpmap.refining.model_file import bundled_prior
from locpmap.refining.scoring import METRICS as PIXEL_METRICS
from locpmap.refining.scoring import difference, score, softmax
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
N_SAMPLES = 39  # positions q · (M + 1) of the quantiles are whole numbers
OFFSETS = (0.3, 0.6, 1.0, 1.5)
MAX_HELD_OUT = 100
N_OFFSET = 12  # held-out images on which the offset is chosen
INDEPENDENT, OFFSET, BUNDLED, FITTED = "independent pixels", "one offset", "lp.refine, bundled", "lp.refine, fitted"
ENSEMBLE, MIXED, STOCHASTIC = "ensemble, its five maps", "ensemble, pixels", "stochastic network"
SCALED = "network, scaled"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Rivals:
    """Everything that samples are drawn from: weights, and files of networks."""

    folder: Path
    fitted: Weights
    offset: float
    members: int

    def maps(self, image: Array, number: int, seed: int) -> Iterator[tuple[str, Array]]:
        """Yield kinds of samples with label maps (M, H, W) of one image."""
        logits = [predict(open_network(self.folder / f"member-{m}.safetensors"), image) for m in range(self.members)]
        scaled = np.float32(self.fitted.scales[0]) * logits[0]
        alone = lp.Potentials.grid(scaled, 0.0)
        pixels = lp.LocPMAP(N_SAMPLES, start="perturbed")
        yield INDEPENDENT, drawn(alone, pixels, number, seed)
        shared = replace(pixels, fields=lp.ErrorFields(shared=self.offset))
        yield OFFSET, drawn(alone, shared, number, seed)
        for kind, weights in {
            BUNDLED: lp.Refiner.load().weights,
            FITTED: self.fitted,
            **ablations(self.fitted),
        }.items():
            prepared = lp.Refiner(weights).prepare(image, logits[0], layout="hwk", scores="logits", stride=1.0)
            yield kind, drawn(prepared.potentials, prepared.sampler(pixels), number, seed)
        if self.members > 1:
            yield ENSEMBLE, np.stack([each.argmax(-1) for each in logits])
            models = [lp.Potentials.grid(np.float32(self.fitted.scales[0]) * each, 0.0) for each in logits]
            own = replace(pixels, n_samples=-(-N_SAMPLES // len(models)))
            yield MIXED, np.concatenate([drawn(model, own, number, seed + m) for m, model in enumerate(models)])
        if (self.folder / "ssn.safetensors").exists():
            network = open_network(self.folder / "ssn.safetensors")
            assert isinstance(network, StochasticNetwork)
            yield STOCHASTIC, draw(network, image, N_SAMPLES, seed)


def ablations(weights: Weights) -> dict[str, Weights]:
    """Return the fitted weights without each of their parts."""
    none = {"sizes": np.zeros_like(weights.sizes), "shared": np.zeros_like(weights.shared)}
    return {
        "fitted, no fields": replace(weights, **none, noise=np.ones_like(weights.noise)),
        "fitted, no coupling": replace(weights, pairwise=np.zeros_like(weights.pairwise)),
        "fitted, noise of scale 1": replace(weights, noise=np.ones_like(weights.noise)),
        "fitted, no presence": replace(weights, presence=np.zeros_like(weights.presence)),
    }


def scored(rivals: Rivals, image: Array, truth: Array, number: int, seed: int) -> dict[str, Any]:
    """Score all kinds of samples of one image, and the probabilities of refining."""
    found: dict[str, Any] = {"maps": {}, "pixels": {}}
    logits = predict(open_network(rivals.folder / "member-0.safetensors"), image)
    n_labels = logits.shape[-1]
    for kind, maps in rivals.maps(image, number, seed):
        found["maps"][kind] = map_score(maps, truth, n_labels)
    found["pixels"][SCALED] = score(softmax(np.float32(rivals.fitted.scales[0]) * logits), truth)
    for kind, refiner in {BUNDLED: lp.Refiner.load(), FITTED: lp.Refiner(rivals.fitted)}.items():
        result = refiner.refine(image, logits, layout="hwk", scores="logits", stride=1.0, seed=seed)
        found["pixels"][kind] = score(np.asarray(result.probability), truth, np.asarray(result.labels))
    return found


def best_offset(part: Part, logits: list[Array], scale: float, seed: int) -> float:
    """Return the offset with the lowest mean CRPS over sizes of windows on held-out images."""
    step = -(-len(logits) // N_OFFSET)

    def loss(size: float) -> float:
        decoder = lp.LocPMAP(N_SAMPLES, start="perturbed", fields=lp.ErrorFields(shared=size))
        scores = [
            map_score(drawn(lp.Potentials.grid(np.float32(scale) * z, 0.0), decoder, n, seed), truth, z.shape[-1])
            for n, (z, truth) in enumerate(zip(logits[::step], part.labels[::step], strict=True))
        ]
        means = mean_scores(scores)["crps"]
        return float(np.mean([np.log(value) for name, value in means.items() if name.startswith("area")]))

    return min(OFFSETS, key=loss)


@app.command()
def measure(
    dataset: str,
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    networks: Annotated[Path, typer.Option(help="Folder that benchmarks.networks wrote.")],
    part: Annotated[str, typer.Option(help="held_out or test.")] = "test",
    n_images: Annotated[int, typer.Option(help="Maximum number of images.")] = 60,
    members: Annotated[int, typer.Option(help="Networks of the ensemble; 1 leaves it out.")] = 5,
    processes: int = 2,
    seed: int = 0,
    record: Annotated[bool, typer.Option(help="Add the table to the record.")] = False,
) -> None:
    """Learn on held-out images, then score every kind of samples."""
    split = load(dataset, data)
    held_out = split.held_out.some(MAX_HELD_OUT)
    network = open_network(networks / "member-0.safetensors")
    logits = [predict(network, image) for image in held_out.images]
    examples = gather(list(held_out.images), logits, list(held_out.labels), -1, "hwk", "logits", 1.0)
    fitted = learn(examples, seed, bundled_prior(examples))
    rivals = Rivals(networks, fitted, best_offset(held_out, logits, float(fitted.scales[0]), seed), members)
    typer.echo(f"offset {rivals.offset}, {fitted}")
    chosen: Part = getattr(split, part).some(n_images)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(scored, rivals, image, truth, n, seed)
            for n, (image, truth) in enumerate(zip(chosen.images, chosen.labels, strict=True))
        ]
        found = [one.result() for one in waiting]
    rows = {kind: mean_scores([one["maps"][kind] for one in found]) for kind in found[0]["maps"]}
    pixels = {kind: [one["pixels"][kind] for one in found] for kind in found[0]["pixels"]}
    gains = {
        kind: {name: list(difference(pixels[kind], pixels[SCALED], metric)) for name, metric in PIXEL_METRICS.items()}
        for kind in (BUNDLED, FITTED)
    }
    for kind, row in rows.items():
        typer.echo(f"{kind}: {json.dumps(row)}")
    typer.echo(json.dumps(gains))
    if record:
        origin = machine.provenance("benchmarks.fields", seed, machine.machine())
        learned = {name: np.asarray(getattr(fitted, name)).tolist() for name in fitted.__dataclass_fields__}
        about = {"part": part, "images": len(found), "held_out": len(examples), "offset": rivals.offset}
        join_record(RECORD, dataset, about | {"rows": rows, "pixels": gains, "learned": learned, "origin": origin})


if __name__ == "__main__":
    app()
