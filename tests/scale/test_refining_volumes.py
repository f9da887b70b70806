"""Tiled refinement of volumes: results do not depend on the tile size, and agree with `lp.refine`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.refining.model_file import VOLUMES
from locpmap.scale import refine_tiled

da = pytest.importorskip("dask.array")

SHAPE, SPACING = (26, 22, 9), (8.0, 4.0, 1.0)  # spheres reach 2 planes and 5 rows
DECODER = lp.LocPMAP(n_samples=8, start="perturbed", max_sweeps=2)


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return a scan of slanted layers, and logits (D, H, W, 3)."""
    rng = np.random.default_rng(3)
    z, y, x = np.indices(SHAPE)
    labels = (z + y + x) // 9 % 3
    scan = 60 * labels + rng.integers(0, 20, SHAPE)
    return scan, (4 * np.eye(3)[labels] + 1.5 * rng.normal(size=(*SHAPE, 3))).astype(np.float32)


def masked() -> np.ndarray:
    mask = np.zeros(SHAPE, bool)
    mask[:7, :, :4] = True
    return mask


def fitted() -> lp.Refiner:
    """Return the bundled refiner as if it were fitted on volumes, with presence."""
    bundled = lp.Refiner.load()
    weights = replace(bundled.weights, presence=np.tile([0.3, 4.0], (len(bundled.weights.strides), 1)))
    return lp.Refiner(weights, {VOLUMES: True})


@pytest.mark.parametrize("model", [None, fitted()], ids=["bundled", "fitted"])
@pytest.mark.parametrize("mask", [None, masked()], ids=["all", "masked"])
def test_tiles_equal_the_whole_volume(
    model: lp.Refiner | None, mask: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locpmap.scale.whole_raster.VOLUME_BLOCK", 12)
    scan, logits = example()
    how: dict[str, Any] = {"spacing": SPACING, "mask": mask, "decoder": DECODER, "seed": 4}
    expected = lp.refine(scan, logits, model, layout="dhwk", **how)
    assert expected.n_changed > 50
    tiled = refine_tiled(da.from_array(scan, 10), logits, model, tile=(5, 6), **how)
    assert tiled.tiling.shape == (6, 4)
    assert tiled.tiling.reach.halo == (2 * 2 + 2, 2 * 2 + 5)
    labels, probability = da.compute(tiled.labels, tiled.probability, scheduler="synchronous")
    assert (labels == expected.labels).mean() > 0.999  # the statistics of intensities are rounded
    assert (np.abs(probability - expected.probability) < 1e-4).mean() > 0.99
    whole = refine_tiled(scan, logits, model, **how).probability.compute()
    np.testing.assert_array_equal(probability, whole)


def test_channels_and_no_image() -> None:
    scan, logits = example()
    both = np.stack([scan, scan[::-1]], axis=-1)
    for image in (both, None):
        expected = lp.refine(image, logits, layout="dhwk", spacing=SPACING, decoder=DECODER)
        tiled = refine_tiled(image, logits, spacing=SPACING, decoder=DECODER, tile=9)
        assert (tiled.labels.compute() == expected.labels).mean() > 0.999


def test_bad_volumes_are_refused() -> None:
    scan, logits = example()
    with pytest.raises(InputError, match=r"logits has shape .*, expected \(H, W, K\), or spacing= for a volume"):
        refine_tiled(scan, logits)
    with pytest.raises(InputError, match=r"expected \(D, H, W, K\)"):
        refine_tiled(scan[0], logits[0], spacing=1)
    with pytest.raises(InputError, match=r"image has shape \(26, 22\), expected \(26, 22, 9\) like logits"):
        refine_tiled(scan[..., 0], logits, spacing=1)
    with pytest.raises(InputError, match="spacing is 0"):
        refine_tiled(scan, logits, spacing=0)
    with pytest.raises(InputError, match="the refiner was fitted on volumes"):
        refine_tiled(scan[0], logits[0], fitted())
