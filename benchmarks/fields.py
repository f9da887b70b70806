"""Samples with error fields compared with other samples, on held-out or test images of `benchmarks.networks`.

``python -m benchmarks.fields stanford --data DATA --networks FOLDER`` prints coverage and CRPS of areas in windows, of
components and perimeters, and the energy score of whole maps, for samples of the first network of the folder.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import locpmap as lp
from benchmarks.networks_data import DATASETS, Part, load
from benchmarks.networks_models import open_network, predict
from locpmap.refining.examples import gather
from locpmap.refining.fitting import fit_scale
from locpmap.refining.fitting_samples import START
from locpmap.refining.map_scores import map_score, mean_scores
from locpmap.refining.similarity import similarity

Array = npt.NDArray[Any]
N_SAMPLES = 40
SIZES, SHARED, COUPLING, NOISE = START
OFFSET = 0.6


def samples_of(kind: str, image: Array, scores: Array, number: int, seed: int) -> Array:
    """Draw label maps (M, H, W) of one kind for an image with scaled scores (H, W, K)."""
    pixels = np.atleast_3d(image).astype(np.float32).transpose(2, 0, 1)[None]
    weight = COUPLING if kind == "fields and coupling" else 0.0
    edges = tuple(weight * similarity(pixels, step)[0] for step in ((0, 1), (1, 0)))
    sizes = [size for j, size in enumerate(SIZES) if 4 << j <= max(scores.shape[:2])]
    fields, noise = {
        "independent pixels": (None, 1.0),
        "one offset per label": (lp.ErrorFields(shared=OFFSET), 1.0),
        "fields": (lp.ErrorFields(sizes, shared=SHARED), NOISE),
        "fields and coupling": (lp.ErrorFields(sizes, shared=SHARED), NOISE),
    }[kind]
    decoder = lp.LocPMAP(N_SAMPLES, "sites", "perturbed", "votes", temperature=noise, keep_samples=True, fields=fields)
    result = lp.infer(lp.Potentials.grid(scores, edges), decoder, seed=seed, first_image=number)
    return np.asarray(result.samples)


KINDS = ("independent pixels", "one offset per label", "fields", "fields and coupling")


def table(part: Part, network: Callable[[Array], Array], n_images: int, seed: int) -> dict[str, Any]:
    """Score every kind of samples on the first images of a part.

    The scale of the scores is fitted to the same images, for all kinds alike; the other parameters are constants.
    """
    images, labels = part.images[:n_images], part.labels[:n_images]
    logits = [network(image) for image in images]
    scale = np.float32(fit_scale(gather(None, logits, labels, -1, "hwk", "logits", 1.0), seed))
    rows = {}
    for kind in KINDS:
        drawn = (
            samples_of(kind, image, scale * z, n, seed) for n, (image, z) in enumerate(zip(images, logits, strict=True))
        )
        scores = [map_score(maps, truth, z.shape[-1]) for maps, truth, z in zip(drawn, labels, logits, strict=True)]
        rows[kind] = mean_scores(scores)
        print(f"{kind}: {json.dumps(rows[kind])}", flush=True)
    return {"scale": float(scale), "n_images": len(images), "rows": rows}


def main() -> None:
    """Parse the command line and print one line per kind of samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=sorted(DATASETS))
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--networks", type=Path, required=True, help="folder that benchmarks.networks wrote")
    parser.add_argument("--part", choices=("held_out", "test"), default="held_out")
    parser.add_argument("--n-images", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    network = open_network(given.networks / "member-0.safetensors", "cpu")
    part = getattr(load(given.dataset, given.data), given.part)
    table(part, lambda image: predict(network, image), given.n_images, given.seed)


if __name__ == "__main__":
    main()
