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


def test_every_volume_is_a_test_volume_of_one_fold() -> None:
    volumes = balls(13)
    tested = []
    for fold in range(network.N_FOLDS):
        parts = network.split(volumes, fold)
        assert len(parts["train"]) in (6, 7)
        assert len({one.name for part in parts.values() for one in part}) == sum(map(len, parts.values())) == 13
        tested += [one.name for one in parts["test"]]
    assert sorted(tested) == [one.name for one in volumes]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unet", "fcn"])
def test_training_writes_logits_that_fit_the_labels(kind: str, tmp_path: Path) -> None:
    network.write_volumes(tmp_path / "balls.npz", balls(13))
    network.train(tmp_path / "balls.npz", tmp_path / "out", [1], kind, steps=40, batch=4, device="cpu")
    folder = tmp_path / "out/fold-1"
    log = json.loads((folder / "log.json").read_text())
    found = [one for part in ("held_out", "test") for one in network.read_volumes(folder / f"{part}.npz")]
    assert len(found) == 6
    stride = {"unet": 1, "fcn": 2}[kind]
    for one in found:
        assert one.logits.shape == (*(-(-n // stride) for n in one.scan.shape), 3)
        assert one.logits.dtype == np.float16
    assert found[0].spacing == (2.0, 1.0, 1.0)
    assert log["test"]["mean_iou"] > 0.5  # 0.28 if all voxels were background


def test_void_voxels_are_padding_only() -> None:
    batches = network.Batches(balls(2), 8, torch.device("cpu"))
    scans, labels = batches(torch.Generator().manual_seed(0))
    assert scans.shape == (8, 1, 8, 9, 8)
    assert set(labels.unique().tolist()) == {-1, 0, 1, 2}
