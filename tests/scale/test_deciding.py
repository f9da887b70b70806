"""Decisions on rasters in tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.scale import decide_tiled
from locpmap.scale import deciding as module

zarr = pytest.importorskip("zarr")
pytest.importorskip("dask")


def scores(height: int, width: int) -> Any:
    """Return scores in which label 3 is rare and uncertain, so that deciding for IoU changes labels."""
    rng = np.random.default_rng(0)
    found = rng.normal(np.array([2.0, 1.5, 0.0, -1.0]), 1.0, (height, width, 4))
    found[: height // 3, : width // 3] += [0.0, 0.0, 2.5, 0.0]
    return found


def written(folder: Path, tile: int = 40, **options: Any) -> Path:
    path = folder / f"{tile}.zarr"
    lp.infer_tiled(scores(70, 90), 0.3, tile=tile, max_sweeps=8, **options).write(path)
    return path


@pytest.mark.parametrize("measure", ["iou", "dice"])
def test_decision_equals_that_of_the_whole_raster(tmp_path: Path, measure: str) -> None:
    path = written(tmp_path)
    probability = zarr.open(path)["probability"][:]
    slope, offset, expected = lp.Decider(measure).add(probability).rule
    decision = decide_tiled(path, measure)
    labels = (slope * probability + offset).argmax(-1)
    assert (labels != probability.argmax(-1)).mean() > 0.02  # the decision differs from the most probable labels
    np.testing.assert_array_equal(decision.labels[:], labels)
    own = np.take_along_axis(probability, labels[..., None], -1).mean(dtype=float)
    assert decision.expected == expected
    assert decision.risk == pytest.approx(1 - own, abs=1e-6)


def test_decision_does_not_depend_on_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 32)
    first, second = (decide_tiled(written(tmp_path, tile)) for tile in (90, 33))
    np.testing.assert_array_equal(first.labels[:], second.labels[:])
    assert first.expected == second.expected


def test_masked_pixels_have_no_label(tmp_path: Path) -> None:
    mask = np.zeros((70, 90), bool)
    mask[10:20, 30:] = True
    labels = decide_tiled(written(tmp_path, mask=mask)).labels[:]
    np.testing.assert_array_equal(labels == -1, mask)


def test_a_second_decision_replaces_the_first(tmp_path: Path) -> None:
    path, seen = written(tmp_path), list[tuple[int, int]]()
    decide_tiled(path, "iou")
    decide_tiled(path, "dice", progress=lambda done, total: seen.append((done, total)))
    assert zarr.open(path)["decided"].attrs["measure"] == "dice"
    assert seen == [(1, 2), (2, 2)]
    assert not list(path.glob(".*.part"))
    again = lp.infer_tiled(scores(70, 90), 0.3, tile=40, max_sweeps=8).write(path)  # still the same, finished run
    assert again.kept == again.tiles


def test_bad_folders_are_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(InputError, match="does not hold a tiled run"):
        decide_tiled(tmp_path / "none.zarr")
    with pytest.raises(InputError, match="did you mean 'iou'"):
        decide_tiled(path, "jaccard")
    with pytest.raises(TypeError, match="progress is 3"):
        decide_tiled(path, progress=3)  # type: ignore[arg-type]
    chunk = path / "probability" / "c" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:40])
    with pytest.raises(InputError, match="damaged"):
        decide_tiled(path)
    chunk.unlink()
    with pytest.raises(InputError, match="damaged: a tile is missing"):
        decide_tiled(path)
    group = zarr.open_group(path)
    group.attrs["locpmap"] = {**group.attrs["locpmap"], "finished": False}
    with pytest.raises(InputError, match="unfinished"):
        decide_tiled(path)


def test_probabilities_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "labels.zarr"
    lp.infer_tiled(scores(20, 20), 0.3, "icm", tile=20).write(path)
    with pytest.raises(InputError, match="holds no probability"):
        decide_tiled(path)


def test_an_error_leaves_the_earlier_decision(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = decide_tiled(path).labels[:]

    def stop(done: int, total: int) -> None:
        if done == total:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        decide_tiled(path, "dice", progress=stop)
    assert not list(path.glob(".*.part"))
    np.testing.assert_array_equal(zarr.open(path)["decided"][:], before)
    assert zarr.open(path)["decided"].attrs["measure"] == "iou"
