"""Folders as a run leaves them, made of invented numbers, for the tests of the report."""

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
DECODERS = {  # name: title, method, family, in the paper as, gain in mean IoU, has probabilities
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
    """Discs in noise, and what every decoder might make of them."""
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
    """The folder of a run with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content))
    np.savez_compressed(folder / "pictures.npz", **pictures(content))  # type: ignore[arg-type]
    return folder
