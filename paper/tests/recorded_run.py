"""Folders of runs with synthetic numbers, for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 28
N_TEST = 5000
LEVELS = {"variance": 0.68, "amplitude": 2.0}

MODELS = {  # name: features, learning, title, typical mean IoU and NLL of LocPMAP
    "raw-pl": ("raw", "pseudolikelihood", "raw features, pseudolikelihood", 0.82, 0.23),
    "raw-pl-difference": ("raw", "pseudolikelihood", "raw features, differences on the edges", 0.80, 0.24),
    "raw-cl": ("raw", "composite", "raw features, composite likelihood", 0.81, 0.17),
    "raw-consistent": ("raw", "consistent", "raw features, consistent learning", 0.83, 0.118),
    "deep-pl": ("deep", "pseudolikelihood", "deep features, pseudolikelihood", 0.845, 0.2),
    "deep-consistent": ("deep", "consistent", "deep features, joint consistent learning", 0.907, 0.055),
    "ce-fresh": ("deep", "cross-entropy", "cross-entropy network, fresh noise", 0.9034, 0.0572),
    "ce-consistent": ("deep", "consistent", "cross-entropy network with a consistent CRF", 0.9036, 0.057),
}
DECODERS = {  # name: title, method, family, name in the paper, gain in mean IoU, has probabilities
    "argmax": ("argmax of the unary", "argmax", "network", None, -0.4, True),
    "icm": ("ICM", "icm", "paper", "ICM", -0.2, False),
    "icm-unary": ("ICM from the unary", "icm", "beyond", None, -0.3, False),
    "icm-iter": ("ICM-iter", "icm_iter", "paper", "ICM-iter", -0.12, True),
    "lbp": ("Loopy BP", "lbp", "paper", "LBP", -0.26, True),
    "mean-field": ("Mean field", "mean_field", "paper", "MF", -0.38, True),
    "annealing": ("Simulated annealing", "annealing", "paper", "SA", -0.1, False),
    "gibbs": ("Gibbs", "gibbs", "paper", "Gibbs", -0.22, True),
    "locpmap": ("LocPMAP", "locpmap", "locpmap", "LocPMAP", 0.0, True),
    "locpmap-conditional": ("LocPMAP, conditional", "locpmap", "locpmap", None, 0.006, True),
    "locpmap-blocks": ("LocPMAP, blocks", "locpmap", "locpmap", None, -0.02, True),
    "locpmap-blocks-conditional": ("LocPMAP, blocks, conditional", "locpmap", "locpmap", None, -0.015, True),
    "trw": ("Tree-reweighted BP", "trw", "beyond", None, -0.3, True),
    "max-product": ("Max-product BP", "max_product", "beyond", None, -0.25, False),
    "graph-cut": ("Graph cut", "graph_cut", "beyond", None, -0.35, False),
    "perturb-and-map": ("Global Perturb-and-MAP", "perturb_and_map", "beyond", None, 0.05, True),
}
PAPER = {
    "setting": "Table 1: MNIST, Gumbel noise, SNR 0.25, 5,000 training and 5,000 test images",
    "raw": {"LBP": [0.846, 0.029, 0.438], "MF": [0.861, 0.059, 0.46], "ICM": [0.73, 0.319, 0.525]}
    | {"ICM-iter": [0.722, 0.312, 0.517], "SA": [0.806, 0.234, 0.52], "Gibbs": [0.84, 0.233, 0.537]}
    | {"LocPMAP": [0.753, 0.337, 0.545]},
    "deep": {"LBP": [0.854, 0.112, 0.446], "ICM": [0.807, 0.389, 0.598], "LocPMAP": [0.826, 0.404, 0.615]},
}


def invented(
    *,
    seeds: Sequence[int] = (0, 1, 2),
    models: Sequence[str] = tuple(MODELS),
    levels: Sequence[str] = tuple(LEVELS),
    paper: bool = True,
) -> dict[str, Any]:
    """The content of a result.json with every part of the schema."""
    rng = np.random.default_rng(5)
    return {
        "schema": 1,
        "experiment": "mnist" if paper else "digits",
        "title": "MNIST: the paper's Table 1" if paper else "Denoising 5,000 digits",
        "fast": False,
        "provenance": {
            "command": "locpmap reproduce mnist --seeds 0,1,2",
            "started": "2026-01-01T10:00:00",
            "finished": "2026-01-01T11:00:00",
            "versions": {"locpmap": "0.4.0", "python": "3.11.9", "numpy": "2.4.6", "numba": "0.68.1", "torch": None},
            "machine": {"processor": "a processor <of 2 cores>", "cores": 2, "gpu": None},
            "data": [{"file": "train-images-idx3-ubyte.gz", "sha256": "4" * 64, "n_bytes": 9_912_422}],
        },
        "protocol": {
            "noise": "gumbel",
            "snr": 0.25,
            "n_train": 5000,
            "n_fit": 4500,
            "n_held_out": 500,
            "n_test": N_TEST,
            "height": SIZE,
            "width": SIZE,
            "labels": ["background", "foreground"],
            "seeds": list(seeds),
            "paper": PAPER if paper else None,
        },
        "levels": [
            {
                "name": name,
                "says": f"the noise's variance comes from the signal's {name}",
                "sigma": [sigma] * len(seeds),
            }
            for name, sigma in LEVELS.items()
            if name in levels
        ],
        "models": [
            {"name": n, "features": f, "learning": how, "title": t, "says": f"How {t} works, in one sentence."}
            for n, (f, how, t, _, _) in MODELS.items()
        ],
        "decoders": [
            {
                "name": n,
                "title": t,
                "method": m,
                "options": {"max_sweeps": 50},
                "family": f,
                "paper": p,
                "says": f"{t}.",
            }
            for n, (t, m, f, p, _, _) in DECODERS.items()
        ],
        "fits": [
            {
                "level": level,
                "seed": seed,
                "model": model,
                "seconds": 12.5,
                "details": {"steps": 300, "loss": 0.1234567},
            }
            for level, seed, model in product(levels, seeds, models)
        ],
        "rows": [
            _row(rng, level, seed, model, decoder)
            for level, seed, model, decoder in product(levels, seeds, models, DECODERS)
            if not model.startswith("ce-fresh") or decoder == "argmax"
        ],
        "ablation": [
            _setting(rng, level, seed, *cell)
            for level, seed in product(levels, seeds)
            for cell in product(
                (True, False),
                ("random", "perturbed", "unary"),
                ("votes", "conditional"),
                ("sites", "rows+columns"),
                (1, 2, 5, 10, 20, 50, 100, 200),
            )
        ],
        "curves": [
            _curve(level, seed, model, decoder)
            for level, seed, model, decoder in product(levels, seeds, models, DECODERS)
            if DECODERS[decoder][5] and (model != "ce-fresh" or decoder == "argmax")
        ],
    }


def _row(rng: np.random.Generator, level: str, seed: int, model: str, decoder: str) -> dict[str, Any]:
    *_, gain, probable = DECODERS[decoder]
    features, learning, _, iou, nll = MODELS[model]
    if learning == "consistent":
        gain *= 0.1
    if decoder == "argmax" and features == "deep":
        gain = 0.0
    if (model, decoder, level) == ("raw-cl", "gibbs", "amplitude"):
        gain = 0.03  # a cell in which LocPMAP loses
    mean = float(np.clip(iou + gain - 0.08 * (level == "amplitude") + rng.normal(0, 0.0008), 0.01, 0.99))
    row: dict[str, Any] = {"level": level, "seed": seed, "model": model, "decoder": decoder, "n_images": N_TEST}
    measures = {
        "iou": [min(mean + 0.1, 1), mean - 0.1],
        "mean_iou": mean,
        "image_iou": mean - 0.01,
        "accuracy": mean,
        "score": 900.0 + 100 * gain,
        "seconds": 3.2,
        "ece": 0.02 - gain / 40,
        "brier": 0.1 - gain / 10,
        "nll": nll - 0.3 * gain - 0.001 * ("conditional" in decoder) + float(rng.normal(0, 0.0004)),
        "aurc": 0.01 - gain / 50,
    }
    if not probable:
        measures |= dict.fromkeys(("ece", "brier", "nll", "aurc"))
    row |= measures | {"status": "converged", "refused": None}
    if decoder == "perturb-and-map":
        row["n_images"] = 200
    if decoder == "graph-cut" and model == "raw-cl":
        row |= dict.fromkeys(measures) | {"status": None, "refused": "two labels repel <somewhere> & no cut is exact"}
    return row


def _setting(
    rng: np.random.Generator,
    level: str,
    seed: int,
    noise: bool,
    start: str,
    probability: str,
    blocks: str,
    n_samples: int,
) -> dict[str, Any]:
    iou = 0.82 - 0.05 * (not noise) - {"random": 0, "perturbed": 0.2, "unary": 0.38}[start]
    iou += 0.01 * (probability == "conditional") - 0.02 * (blocks != "sites") - 0.1 / n_samples
    return {
        "level": level,
        "seed": seed,
        "model": "raw-pl",
        "noise": noise,
        "start": start,
        "probability": probability,
        "blocks": blocks,
        "n_samples": n_samples,
        "mean_iou": iou + float(rng.normal(0, 0.001)),
        "nll": 1.1 - iou + float(rng.normal(0, 0.001)),
        "seconds": 0.05 * n_samples,
    }


def _curve(level: str, seed: int, model: str, decoder: str) -> dict[str, Any]:
    gain = DECODERS[decoder][4]
    confidence = np.linspace(0.52, 0.99, 8)
    coverage = np.linspace(0.05, 1, 20)
    return {
        "level": level,
        "seed": seed,
        "model": model,
        "decoder": decoder,
        "calibration": [[float(c), float(c ** (1 - 2 * gain)), 0.125] for c in confidence] + [[0.5, None, 0.0]],
        "risk": [[float(c), float(0.1 * (1 - gain) * c**3)] for c in coverage],
    }


def pictures(content: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return discs in noise, and plausible results of every decoder."""
    rng = np.random.default_rng(6)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    radii = np.arange(5, 13)[:, None, None]
    truth = ((rows - 13.5) ** 2 + (columns - 13.5) ** 2 < radii**2).astype(np.uint8)
    arrays = {}
    for level in content["levels"]:
        name, sigma = level["name"], level["sigma"][0]
        arrays[f"{name}/input"] = (truth + sigma * rng.normal(size=truth.shape)).astype(np.float32)
        arrays[f"{name}/truth"] = truth
        for model, decoder in sorted({(row["model"], row["decoder"]) for row in content["rows"]}):
            flips = rng.random(truth.shape) < 0.04
            arrays[f"{name}/{model}/{decoder}/labels"] = truth ^ flips
            if decoder.startswith("locpmap"):
                p = np.clip(0.85 * truth + 0.1 * rng.random(truth.shape), 0, 1).astype(np.float16)
                arrays[f"{name}/{model}/{decoder}/probability"] = p
                arrays[f"{name}/{model}/{decoder}/variance"] = p * (1 - p)
    return arrays


def write_run(folder: Path, content: dict[str, Any]) -> Path:
    """Write the folder of a run with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content))
    np.savez_compressed(folder / "pictures.npz", **pictures(content))  # type: ignore[arg-type]
    return folder


# scenes

SCENE_LABELS = ("sky", "tree", "road", "grass", "water", "building", "mountain", "object")
UNARIES = {"boosted": 0.60, "deeplab": 0.70, "pretrained": 0.75}  # mean IoU of the unaries alone
SCENE_MODELS = {  # name: learning, title, gain of LocPMAP over the unaries
    "unaries": ("none", "unaries alone", 0.0),
    "scaled": ("temperature", "unaries, temperature scaled", 0.0),
    "pl-edges": ("pseudolikelihood", "pseudolikelihood on learned boundaries", 0.01),
    "consistent-edges": ("consistent", "consistent learning on learned boundaries", 0.02),
}
SCENE_DECODERS = ("argmax", "icm", "icm-iter", "lbp", "gibbs", "locpmap", "locpmap-conditional", "perturb-and-map")
SCENE_PAPER: dict[str, Any] = {
    "setting": "Table 3: Stanford Background, 600 training and 115 test images",
    "raw": {
        "ICM": [0.807, 0.648, 0.845, 0.790, 0.770, 0.686, 0.343, 0.633, 0.690],
        "LBP": [0.861, 0.640, 0.832, 0.783, 0.771, 0.675, 0.522, 0.646, 0.716],
        "LocPMAP": [0.854, 0.650, 0.844, 0.794, 0.784, 0.686, 0.512, 0.652, 0.722],
    },
    "deep": {
        "ICM": [0.843, 0.628, 0.853, 0.729, 0.759, 0.724, 0.175, 0.668, 0.672],
        "LocPMAP": [0.846, 0.636, 0.859, 0.742, 0.769, 0.729, 0.259, 0.701, 0.693],
    },
}


def invented_scenes(*, seeds: Sequence[int] = (0, 1), levels: Sequence[str] = tuple(UNARIES)) -> dict[str, Any]:
    """Return a record of scenes with 8 labels and three kinds of unaries; the CRF loses on the pretrained ones."""
    rng = np.random.default_rng(7)
    content = invented(seeds=seeds, models=(), levels=()) | {"ablation": []}
    content |= {"experiment": "stanford", "title": "Stanford Background: the paper's Table 3"}
    content["protocol"] |= {"noise": None, "snr": None, "n_train": 600, "n_fit": 480, "n_held_out": 120, "n_test": 115}
    content["protocol"] |= {"labels": list(SCENE_LABELS), "paper": SCENE_PAPER, "pictured": [1, 7]}
    content["protocol"] |= {"height": 320, "width": 320}
    content["levels"] = [{"name": name, "says": f"Unaries of the kind {name}.", "sigma": []} for name in levels]
    content["models"] = [
        {"name": name, "features": "scenes", "learning": learning, "title": title, "says": f"How {title} works."}
        for name, (learning, title, _) in SCENE_MODELS.items()
    ]
    content["decoders"] = [decoder for decoder in content["decoders"] if decoder["name"] in SCENE_DECODERS]
    cells = [
        cell
        for cell in product(levels, seeds, SCENE_MODELS, SCENE_DECODERS)
        if (cell[2] in ("unaries", "scaled")) == (cell[3] == "argmax")
    ]
    content["rows"] = [_scene_row(rng, *cell) for cell in cells]
    content["curves"] = [_curve(*cell) for cell in cells if DECODERS[cell[3]][5]]
    content["fits"] = [
        {"level": level, "seed": seed, "model": model, "seconds": 31.5, "details": {"steps": 30}}
        for level, seed, model in product(levels, seeds, SCENE_MODELS)
    ]
    return content


def _scene_row(rng: np.random.Generator, level: str, seed: int, model: str, decoder: str) -> dict[str, Any]:
    *_, gain, probable = DECODERS[decoder]
    better = 0.0 if decoder == "argmax" else SCENE_MODELS[model][2] * (-1 if level == "pretrained" else 1)
    better += 0.1 * gain if decoder != "argmax" else 0.0
    mean = UNARIES[level] + better + float(rng.normal(0, 0.001))
    spread = np.linspace(-0.2, 0.2, len(SCENE_LABELS)) * (1 if decoder == "argmax" else 0.8)
    row: dict[str, Any] = {"level": level, "seed": seed, "model": model, "decoder": decoder, "n_images": 115}
    nll = 1.2 - UNARIES[level] - better - 0.05 * (model == "scaled")
    row |= {"iou": list(mean + spread), "mean_iou": mean, "image_iou": mean - 0.02, "accuracy": mean + 0.1}
    row |= {"score": None if decoder == "argmax" else 9000.0, "seconds": 57.5, "status": "converged", "refused": None}
    row |= {"ece": 0.05 - better, "brier": 0.3 - better, "nll": nll, "aurc": 0.06 - better / 2}
    if not probable:
        row |= dict.fromkeys(("ece", "brier", "nll", "aurc"))
    if decoder == "perturb-and-map":
        row["n_images"] = 5
    return row


def scene_pictures(content: dict[str, Any], size: int = 40, n_scenes: int = 3) -> dict[str, np.ndarray]:
    """Return scenes of different sizes on a canvas with void pixels, and plausible results of every decoder."""
    rng = np.random.default_rng(8)
    truth = np.stack([_scene(rng, size, n) for n in range(n_scenes)])
    there = truth != -2
    shades = rng.integers(40, 220, (len(SCENE_LABELS) + 1, 3))
    photographs = np.where(there[..., None], shades[truth] + rng.integers(-25, 25, (*truth.shape, 3)), 127)
    void = np.where(there, truth, -1).astype(np.int8)
    void[:, 3:5] = -1
    arrays: dict[str, np.ndarray] = {}
    for level in content["levels"]:
        arrays[f"{level['name']}/input"] = photographs.astype(np.uint8)
        arrays[f"{level['name']}/truth"] = void
        for model, decoder in sorted({(row["model"], row["decoder"]) for row in content["rows"]}):
            name = f"{level['name']}/{model}/{decoder}"
            coarse = rng.random((n_scenes, -(-size // 8), -(-size // 8)))
            blotch = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :size, :size]
            labels = np.where(blotch > 0.9, np.roll(truth, 5, axis=2), truth)
            arrays[f"{name}/labels"] = np.where(there, np.where(labels == -2, truth, labels), -1).astype(np.int8)
            if decoder.startswith("locpmap"):
                sure = 0.98 - 0.5 * blotch**4 - 0.05 * rng.random(truth.shape)
                p = [np.where(arrays[f"{name}/labels"] == label, sure, (1 - sure) / 7) for label in (1, 7)]
                arrays[f"{name}/probability"] = np.stack(p, axis=-1).astype(np.float16)
                arrays[f"{name}/variance"] = (sure * (1 - sure) + (1 - sure) * (1 - (1 - sure) / 7)).astype(np.float16)
    return arrays


def _scene(rng: np.random.Generator, size: int, n: int) -> np.ndarray:
    """Return a label map with sky, mountains, trees, a house, grass, a road, water and an object; -2 outside."""
    rows, columns = np.mgrid[:size, :size] / size
    high, wide = ((0.75, 1.0), (1.0, 0.75), (0.6, 0.9))[n % 3]
    scene = np.full((size, size), 3)
    scene[rows < 0.45 * high] = 0
    scene[(rows < 0.5 * high) & (rows > 0.25 * high + 0.2 * np.abs(columns - 0.6 * wide))] = 6
    scene[(rows > 0.25 * high) & (rows < 0.7 * high) & (columns > 0.65 * wide)] = 5
    scene[(rows - 0.4 * high) ** 2 + (columns - 0.2 * wide) ** 2 < 0.02] = 1
    scene[rows > 0.85 * high] = 2
    scene[(rows > 0.62 * high) & (rows < 0.75 * high) & (columns < 0.4 * wide)] = 4
    middle = float(rng.uniform(0.4, 0.6))
    scene[(np.abs(rows - 0.8 * high) < 0.09) & (np.abs(columns - middle * wide) < 0.06)] = 7
    scene[(rows >= high) | (columns >= wide)] = -2
    return scene


def write_scenes(folder: Path, content: dict[str, Any], size: int = 40, n_scenes: int = 3) -> Path:
    """Write the folder of a run on scenes with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content))
    np.savez_compressed(folder / "pictures.npz", **scene_pictures(content, size, n_scenes))  # type: ignore[arg-type]
    return folder
