"""The 3-D network of `benchmarks.volume_network`, on synthetic volumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
network = pytest.importorskip("benchmarks.volume_network")


def balls(n: int) -> list[Any]:
    """Return scans of a bright ball with a brighter half, of different sizes."""
    rng, found = np.random.default_rng(0), []
    for k in range(n):
        z, y, x = np.indices((7 + k % 2, 9, 8)) - 4.0 + rng.uniform(-0.5, 0.5, (3, 1, 1, 1))
        labels = np.where(z**2 + y**2 + x**2 < 9, 1 + (z > 0), 0)
        scan = labels + 0.3 * rng.normal(size=labels.shape)
        found.append(network.Volume(f"ball_{k:03d}", scan.astype(np.float16), labels.astype(np.uint8), (2.0, 1.0, 1.0)))
    return found


def test_the_split_is_disjoint_and_has_the_documented_sizes() -> None:
    parts = network.split(balls(130))
    assert {name: len(part) for name, part in parts.items()} == {"train": 60, "held_out": 35, "test": 35}
    assert len({one.name for part in parts.values() for one in part}) == 130


@pytest.mark.slow
def test_training_writes_logits_that_fit_the_labels(tmp_path: Path) -> None:
    network.write_volumes(tmp_path / "balls.npz", balls(13))
    network.train(tmp_path / "balls.npz", tmp_path / "out", steps=40, batch=4, device="cpu")
    log = json.loads((tmp_path / "out/log.json").read_text())
    found = [one for part in ("held_out", "test") for one in network.read_volumes(tmp_path / f"out/{part}.npz")]
    assert len(found) == 7
    assert all(one.logits.shape == (*one.scan.shape, 3) and one.logits.dtype == np.float16 for one in found)
    assert found[0].spacing == (2.0, 1.0, 1.0)
    assert log["test"]["mean_iou"] > 0.5  # 0.28 if all voxels were background


def test_void_voxels_are_padding_only() -> None:
    batches = network.Batches(balls(2), 8, torch.device("cpu"))
    scans, labels = batches(torch.Generator().manual_seed(0))
    assert scans.shape == (8, 1, 8, 9, 8)
    assert set(labels.unique().tolist()) == {-1, 0, 1, 2}
