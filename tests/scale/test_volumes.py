"""Tiles of volumes: planes and rows are divided, and results equal those of the whole volume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.scale import decide_tiled
from locpmap.scale.tiling import reach_of

pytest.importorskip("dask", reason="dask is not installed")

SHAPE, K = (13, 12, 4), 3
SPACING = (2.0, 1.0, 0.5)


def unaries(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(*SHAPE, K))


def weights(connectivity: int) -> tuple[Any, ...]:
    """Return random weights per edge, some negative, so that many sites change in several sweeps."""
    rng = np.random.default_rng(1)
    shapes = lp.graphs.Volume(*SHAPE, connectivity).direction_shapes
    return tuple(rng.normal(0.4, 0.5, size=shape) for shape in shapes)


def test_areas_are_those_of_the_samples() -> None:
    decoder = lp.LocPMAP(4, max_sweeps=1, keep_samples=True)
    tiled = lp.infer_tiled(unaries(), 0.5, decoder, tile=(5, 6))
    samples = lp.infer(lp.Potentials.volume(unaries(), 0.5), decoder, device="cpu").samples
    np.testing.assert_array_equal(
        tiled.areas.compute(), [np.bincount(sample.ravel(), minlength=K) for sample in samples]
    )


def check(tiled: Any, whole: Any) -> None:
    np.testing.assert_array_equal(tiled.labels.compute(), whole.labels)
    np.testing.assert_array_equal(tiled.probability.compute(), whole.probability)


@pytest.mark.parametrize(
    ("connectivity", "options"),
    [
        (6, {"max_sweeps": 1}),
        (6, {"max_sweeps": 2, "probability": "votes"}),
        (6, {"max_sweeps": 1, "blocks": (2, 1, 2)}),
        (6, {"max_sweeps": 1, "blocks": "columns:3"}),
        (26, {"max_sweeps": 1, "probability": "votes"}),
        (26, {"max_sweeps": 2}),
        (26, {"max_sweeps": 1, "blocks": (1, 2, 2)}),
    ],
    ids=str,
)
def test_tiles_equal_the_whole_volume(connectivity: int, options: dict[str, Any]) -> None:
    unary, pairwise = unaries(), weights(connectivity)
    decoder = lp.LocPMAP(8, **options)
    tiled = lp.infer_tiled(unary, pairwise, decoder, tile=(2, 3), seed=5, connectivity=connectivity)
    whole = lp.infer(lp.Potentials.volume(unary, pairwise, connectivity=connectivity), decoder, seed=5, device="cpu")
    assert tiled.labels.numblocks == (7, 4, 1)
    assert tiled.tiling.tile(0, 0).window.shape != SHAPE[:2]  # a window is smaller than the volume
    check(tiled, whole)


@pytest.mark.parametrize("method", ["icm", "mean_field"])
def test_other_decoders_spacing_and_masks(method: str) -> None:
    unary, mask = unaries(), np.random.default_rng(2).random(SHAPE) < 0.2
    mask[:4, :4] = True
    how: dict[str, Any] = {"spacing": SPACING, "mask": mask}
    tiled = lp.infer_tiled(unary, 0.8, method, tile=4, max_sweeps=2, **how)
    whole = lp.infer(lp.Potentials.volume(unary, 0.8, **how), method, max_sweeps=2, device="cpu")
    np.testing.assert_array_equal(tiled.labels.compute(), whole.labels)
    if method == "mean_field":
        np.testing.assert_array_equal(tiled.probability.compute(), whole.probability)
        np.testing.assert_allclose(tiled.entropy.compute()[~mask], whole.entropy[~mask], atol=1e-12)


@pytest.mark.parametrize("connectivity", [6, 26])
def test_narrower_halos_give_other_results(connectivity: int) -> None:
    decoder = lp.LocPMAP(8, max_sweeps=2, probability="votes")
    tiled = lp.infer_tiled(unaries(), weights(connectivity), decoder, tile=(2, 3), connectivity=connectivity)
    narrow = replace(tiled, tiling=replace(tiled.tiling, reach=tiled.tiling.reach._replace(n_sweeps=1)))
    assert (narrow.probability.compute() != tiled.probability.compute()).any()


def test_halos_follow_from_the_classes_of_sites() -> None:
    votes: dict[str, Any] = {"probability": "votes"}
    assert reach_of(lp.LocPMAP(max_sweeps=3, **votes), 6, 3).halo == (6, 6)
    assert reach_of(lp.LocPMAP(max_sweeps=3, **votes), 26, 3).halo == (6, 12)
    assert reach_of(lp.LocPMAP(max_sweeps=3), 26, 3).halo == (7, 13)


def test_a_run_is_written_and_decided(tmp_path: Path) -> None:
    pytest.importorskip("zarr", reason="zarr is not installed")
    unary = unaries()
    np.save(tmp_path / "unary.npy", unary)
    source = lp.scale.open_raster(tmp_path / "unary.npy")
    tiled = lp.infer_tiled(source, 0.5, tile=(5, 6), max_sweeps=2, n_samples=10)
    summary = tiled.write(tmp_path / "out.zarr", n_threads=1)
    assert (summary.tiles, summary.pixels) == (6, 13 * 12 * 4)
    assert tiled.write(tmp_path / "out.zarr", n_threads=1).kept == 6
    whole = lp.infer(lp.Potentials.volume(unary, 0.5), max_sweeps=2, n_samples=10, device="cpu")
    decision = decide_tiled(tmp_path / "out.zarr")
    assert decision.labels.shape == SHAPE
    np.testing.assert_array_equal(decision.labels[:], whole.decide("iou").labels)


BAD: dict[str, tuple[Any, str]] = {
    "five axes": (lambda: lp.infer_tiled(unaries()[None], 1.0), r"expected \(H, W, L\) or \(D, H, W, L\)"),
    "spacing": (lambda: lp.infer_tiled(unaries()[0], 1.0, spacing=SPACING), "expected a volume"),
    "spacing 0": (lambda: lp.infer_tiled(unaries(), 1.0, spacing=(1.0, 0.0, 1.0)), "spacing is"),
    "connectivity": (lambda: lp.infer_tiled(unaries(), 1.0, connectivity=4), "expected 6 or 26 neighbours"),
    "weights": (lambda: lp.infer_tiled(unaries(), (1.0, 1.0)), "2 entries, expected one per step"),
    "mask": (lambda: lp.infer_tiled(unaries(), 1.0, mask=np.zeros((13, 12), bool)), "mask has shape"),
    "tile": (lambda: lp.infer_tiled(unaries(), 1.0, tile=(2, 2, 2)), "two .depth, height"),  # type: ignore[arg-type]
    "rows": (lambda: lp.infer_tiled(unaries(), 1.0, blocks="rows"), "in a single step"),
    "a flat tile": (lambda: lp.infer_tiled(unaries(), 1.0, blocks=(2, 2)), "tile of 2 sides, expected 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(lp.InputError, match=message):
        call()
