"""Model files of every version, which later versions must read: ``python -m tests.model_files`` writes missing ones.

Each folder under ``tests/fixtures`` holds one small file of every kind, and the numbers that were computed with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import locpmap as lp

FOLDER = Path(__file__).parent / "fixtures"


def image_and_logits() -> tuple[Any, Any]:
    """Return a small image (H, W, 3) of bytes and logits (H, W, 3), the same everywhere."""
    rng = np.random.default_rng(2026)
    image = rng.integers(256, size=(9, 11, 3)).astype(np.uint8)
    return image, rng.integers(-8, 9, size=(9, 11, 3)) / 4


def scan_and_logits() -> tuple[Any, Any]:
    """Return a small scan (D, H, W) and logits (D, H, W, 2), the same everywhere."""
    rng = np.random.default_rng(2026)
    return rng.normal(size=(4, 6, 5)), rng.integers(-8, 9, size=(4, 6, 5, 2)) / 4


def make_crf(path: Path) -> None:
    """Fit a CRF to a synthetic image."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.repeat(rng.integers(3, size=(4, 3, 3)), 4, axis=1), 4, axis=2)
    crf = lp.CRF(3)
    crf.fit(labels + rng.normal(0, 0.5, labels.shape), labels)
    crf.save(path)


def make_refiner(path: Path) -> None:
    """Adjust the bundled refiner."""
    lp.Refiner.load().adjusted(strength=0.5, temperature=1.25).save(path)


def make_crf_of_volumes(path: Path) -> None:
    """Fit a CRF to synthetic volumes, and add error fields."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.repeat(rng.integers(2, size=(4, 4, 2, 2)), 3, axis=2), 3, axis=3)
    crf = lp.CRF(2, features=lp.ImageFeatures(spacing=(2.0, 1.0, 1.0)))
    crf.fit(labels + rng.normal(0, 0.5, labels.shape), labels)
    crf.calibration = replace(crf.calibration, temperature=0.75, fields=lp.ErrorFields([0.5], shared=0.25))
    crf.save(path)


def make_refiner_of_volumes(path: Path) -> None:
    """Give the bundled refiner a factor and an offset per label, and calibrate it on volumes."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(9, 4, 6, 5, 2))
    labels = (logits + rng.normal(size=logits.shape)).argmax(axis=-1)
    weights = lp.Refiner.load().weights
    n = len(weights.strides)
    biased = replace(weights, factors=np.full((n, 2), [1.0, 1.5]), offsets=np.full((n, 2), [0.0, -0.25]))
    lp.Refiner(biased).guaranteed(None, logits, labels, ["volume"], layout="dhwk", spacing=(2.0, 1.0, 1.0)).save(path)


def make_network(path: Path) -> None:
    """Save an untrained network with a head."""
    import torch

    from locpmap.nn import FCN, CRFHead, CRFNetwork

    torch.manual_seed(0)
    CRFNetwork(FCN(3, channels=3, widths=(4, 4)), CRFHead(3)).save(path)


def answer_of_crf(path: Path) -> Any:
    """Return probabilities (H, W, L) of mean field, which draws nothing at random."""
    image, _ = image_and_logits()
    return lp.CRF.load(path).infer(image[:, :, 0] / 100, "mean_field").probability


def answer_of_refiner(path: Path) -> Any:
    """Return probabilities (H, W, L)."""
    return lp.refine(*image_and_logits(), lp.Refiner.load(path), seed=0).probability


def answer_of_crf_of_volumes(path: Path) -> Any:
    """Return probabilities (D, H, W, L) of samples with error fields."""
    return lp.CRF.load(path).infer(scan_and_logits()[0], seed=0).probability


def answer_of_refiner_of_volumes(path: Path) -> Any:
    """Return the ends of the guaranteed intervals of volumes, (2, L)."""
    refiner = lp.Refiner.load(path)
    _, logits = scan_and_logits()
    found = refiner.measure(None, logits, "volume", layout="dhwk", spacing=(2.0, 1.0, 1.0))
    return found.interval(0.9, guarantee=refiner)


def answer_of_network(path: Path) -> Any:
    """Return logits (1, H, W, L)."""
    from locpmap.nn import CRFNetwork

    image, _ = image_and_logits()
    return CRFNetwork.load(path).logits(np.moveaxis(image, 2, 0)[None] / np.float32(255))


def make_network_with_fields(path: Path) -> None:
    """Save a network with random weights whose head predicts the sizes of error fields."""
    import torch

    from locpmap.nn import FCN, CRFHead, CRFNetwork

    torch.manual_seed(0)
    network = CRFNetwork(FCN(3, channels=3, widths=(4, 4)), CRFHead(3, feature_channels=4, n_scales=2))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    network.save(path)


def answer_of_network_with_fields(path: Path) -> Any:
    """Return the sizes of the error fields, (1, J, L)."""
    from locpmap.nn import CRFNetwork

    image, _ = image_and_logits()
    return CRFNetwork.load(path).fields(np.moveaxis(image, 2, 0)[None] / np.float32(255)).sizes


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "crf": (make_crf, answer_of_crf),
    "refiner": (make_refiner, answer_of_refiner),
    "network": (make_network, answer_of_network),
    "crf-of-volumes": (make_crf_of_volumes, answer_of_crf_of_volumes),
    "refiner-of-volumes": (make_refiner_of_volumes, answer_of_refiner_of_volumes),
    "network-with-fields": (make_network_with_fields, answer_of_network_with_fields),
}

if __name__ == "__main__":
    folder = FOLDER / lp.__version__
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (make, answer) in KINDS.items():
        path = folder / f"{kind}.safetensors"
        if not path.exists():  # files of a version never change
            make(path)
            path.with_suffix(".json").write_text(json.dumps(np.round(answer(path), 6).tolist()) + "\n")
