"""Model files of every version, which later versions must read: ``python -m tests.model_files`` writes today's.

Each folder under ``tests/fixtures`` holds one small file of every kind and the answers that it gave.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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


def answer_of_network(path: Path) -> Any:
    """Return logits (1, H, W, L)."""
    from locpmap.nn import CRFNetwork

    image, _ = image_and_logits()
    return CRFNetwork.load(path).logits(np.moveaxis(image, 2, 0)[None] / np.float32(255))


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "crf": (make_crf, answer_of_crf),
    "refiner": (make_refiner, answer_of_refiner),
    "network": (make_network, answer_of_network),
}

if __name__ == "__main__":
    folder = FOLDER / lp.__version__
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (make, answer) in KINDS.items():
        path = folder / f"{kind}.safetensors"
        make(path)
        (folder / f"{kind}.json").write_text(json.dumps(np.round(answer(path), 6).tolist()) + "\n")
