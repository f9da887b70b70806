"""Zarr output of tiled runs: content, resumed runs, and bad outputs and sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError
from locpmap.scale import open_raster
from locpmap.scale import store as stores
from locpmap.scale.sources import as_source, fingerprint

zarr = pytest.importorskip("zarr")
da = pytest.importorskip("dask.array")

OPTIONS: dict[str, Any] = {"seed": 3, "max_sweeps": 3, "n_samples": 5}
NAMES = ("labels", "probability", "variance", "entropy")


def scores(height: int = 40, width: int = 33) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(height, width, 3)).astype(np.float32)


def contents(path: Path) -> dict[str, np.ndarray]:
    group = zarr.open_group(path, mode="r")
    return {name: group[name][:] for name in NAMES if name in group}


def equal(path: Path, whole: lp.Result) -> bool:
    found = contents(path)
    return all(np.array_equal(found[name], getattr(whole, name)) for name in found)


@pytest.fixture(scope="module")
def whole() -> lp.Result:
    return lp.infer(lp.Potentials.grid(scores(), 1.0), **OPTIONS)


class Interruption(Exception):
    """A simulated crash."""


def interrupt_after(n_tiles: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Interrupt the run after ``n_tiles`` tiles, in the middle of the next; return the list of started tiles."""
    write, started = stores.Store.write, []

    def failing(self: Any, tile: Any, decoded: Any) -> None:
        started.append(tile[:2])
        if len(started) > n_tiles:
            self._group("r+")["labels"][tile.core.slices] = -1  # a part of the tile's chunks
            raise Interruption
        write(self, tile, decoded)

    monkeypatch.setattr(stores.Store, "write", failing)
    return started


@pytest.mark.parametrize("tile", [7, (16, 40), 100])
def test_written_arrays_equal_those_of_infer(tmp_path: Path, whole: lp.Result, tile: Any) -> None:
    calls: list[tuple[int, int]] = []
    tiled = lp.infer_tiled(scores(), 1.0, tile=tile, **OPTIONS)
    summary = tiled.write(tmp_path / "out.zarr", progress=lambda done, total, rate: calls.append((done, total)))
    assert equal(tmp_path / "out.zarr", whole)
    assert set(contents(tmp_path / "out.zarr")) == set(NAMES)
    assert (summary.kept, summary.pixels) == (0, 40 * 33)
    assert calls == [(n + 1, summary.tiles) for n in range(summary.tiles)]
    assert [file.name for file in tmp_path.iterdir()] == ["out.zarr"]


def test_only_requested_arrays_are_written(tmp_path: Path, whole: lp.Result) -> None:
    lp.infer_tiled(scores(), 1.0, tile=20, **OPTIONS).write(tmp_path / "out.zarr", arrays=("labels", "entropy"))
    assert set(contents(tmp_path / "out.zarr")) == {"labels", "entropy"}
    assert equal(tmp_path / "out.zarr", whole)
    lp.infer_tiled(scores(), 1.0, "icm", max_sweeps=2).write(tmp_path / "icm.zarr")
    assert set(contents(tmp_path / "icm.zarr")) == {"labels"}


def test_resumed_run_decodes_only_missing_tiles(
    tmp_path: Path, whole: lp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.zarr"
    with monkeypatch.context() as patch:
        started = interrupt_after(3, patch)
        with pytest.raises(Interruption):
            lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS).write(out, n_threads=1)
    assert not equal(out, whole)
    assert not zarr.open_group(out, mode="r").attrs["locpmap"]["finished"]
    with monkeypatch.context() as patch:
        again = interrupt_after(100, patch)
        summary = lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS).write(out, n_threads=2)
    assert summary.kept == 3
    assert not set(again) & set(started[:3])
    assert started[3] in again
    assert equal(out, whole)
    assert zarr.open_group(out, mode="r").attrs["locpmap"]["finished"]
    assert lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS).write(out).pixels == 0


def test_tile_is_done_only_after_all_its_arrays_are_written(
    tmp_path: Path, whole: lp.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(probability: Any) -> Any:
        raise Interruption

    out = tmp_path / "out.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(stores, "entropy_of", fail)
        with pytest.raises(Interruption):
            lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS).write(out, n_threads=1)
    assert not zarr.open_group(out, mode="r")["tiles"][:].any()
    lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS).write(out)
    assert equal(out, whole)


def test_summary_counts_tiles_that_did_not_converge(tmp_path: Path) -> None:
    tiled = lp.infer_tiled(scores(), 3.0, tile=20, seed=3, max_sweeps=1)
    summary = tiled.write(tmp_path / "out.zarr")
    assert summary.not_converged == int((~tiled.converged).sum().compute()) == 4
    assert zarr.open_group(tmp_path / "out.zarr", mode="r").attrs["locpmap"]["not_converged"] == 4


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"seed": 4}, "its seed is 3, expected 4"),
    ({"tile": 17}, r"its tile is \[16, 16\], expected \[17, 17\]"),
    ({"n_samples": 6}, "its options is "),
    ({"method": "icm"}, "its method is 'locpmap', expected 'icm'"),
    ({"pairwise": 1.1}, "its pairwise is "),
    ({"unary": scores() + 1}, "its unary is "),
    ({"unary": scores(41)}, r"its shape is \[40, 33, 3\], expected \[41, 33, 3\]"),
    ({"mask": np.eye(40, 33, dtype=bool)}, "its mask is None"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_output_of_another_run_is_not_changed(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    out = tmp_path / "out.zarr"
    given: dict[str, Any] = {"unary": scores(), "pairwise": 1.0, "tile": 16, **OPTIONS}
    lp.infer_tiled(**given).write(out)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    given.update(change)
    if given.get("method") == "icm":
        del given["n_samples"]
    with pytest.raises(InputError, match=f"out.zarr holds another run: .*{message}"):
        lp.infer_tiled(**given).write(out)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_invalid_outputs_are_refused(tmp_path: Path) -> None:
    tiled = lp.infer_tiled(scores(), 1.0, tile=16, **OPTIONS)
    (tmp_path / "file.zarr").write_text("x")
    (tmp_path / "folder.zarr").mkdir()
    zarr.create_array(tmp_path / "array.zarr", shape=(3,), dtype="f4")
    for name in ("file.zarr", "folder.zarr", "array.zarr"):
        with pytest.raises(InputError, match=f"{name} exists and does not hold a tiled run"):
            tiled.write(tmp_path / name)
    with pytest.raises(InputError, match="there is no folder"):
        tiled.write(tmp_path / "none" / "out.zarr")
    with pytest.raises(InputError, match="unknown array 'label': did you mean 'labels'"):
        tiled.write(tmp_path / "out.zarr", arrays=("label",))
    assert {file.name for file in tmp_path.iterdir()} == {"file.zarr", "folder.zarr", "array.zarr"}


def test_bad_chunk_raises_an_error_and_other_tiles_remain(tmp_path: Path) -> None:
    unary = scores()
    unary[39, 32] = np.nan
    with pytest.raises(InputError, match=r"in the window of rows .* contains nan"):
        lp.infer_tiled(unary, 1.0, tile=16, **OPTIONS).write(tmp_path / "out.zarr", n_threads=1)
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert (group["tiles"][:] > 0).sum() >= 4
    assert not group.attrs["locpmap"]["finished"]


# sources


def as_npy(folder: Path, array: np.ndarray) -> Any:
    np.save(folder / "scores.npy", array)
    return open_raster(folder / "scores.npy")


def as_fortran(folder: Path, array: np.ndarray) -> Any:
    np.save(folder / "scores.npy", np.asfortranarray(array))
    return open_raster(folder / "scores.npy")


def as_memmap(folder: Path, array: np.ndarray) -> Any:
    np.save(folder / "scores.npy", array)
    return np.load(folder / "scores.npy", mmap_mode="r")


def as_zarr(folder: Path, array: np.ndarray) -> Any:
    zarr.create_array(folder / "scores.zarr", data=array, chunks=(13, 14, 2))
    return open_raster(folder / "scores.zarr")


def as_old_zarr(folder: Path, array: np.ndarray) -> Any:
    zarr.create_array(folder / "scores.zarr", data=array, zarr_format=2)
    return open_raster(folder / "scores.zarr")


def as_tiff(folder: Path, array: np.ndarray) -> Any:
    rasterio = pytest.importorskip("rasterio")
    height, width, bands = array.shape
    size = {"height": height, "width": width, "count": bands, "dtype": "float32"}
    place = rasterio.Affine(0.1, 0, 5, 0, -0.1, 50)
    with rasterio.open(folder / "scores.tif", "w", driver="GTiff", transform=place, crs="EPSG:4326", **size) as file:
        file.write(np.moveaxis(array, -1, 0))
    return open_raster(folder / "scores.tif")


@pytest.mark.parametrize("kind", [as_npy, as_fortran, as_memmap, as_zarr, as_old_zarr, as_tiff])
def test_rasters_in_files_equal_arrays(tmp_path: Path, whole: lp.Result, kind: Any) -> None:
    source = kind(tmp_path, scores())
    assert source.shape == (40, 33, 3)
    np.testing.assert_array_equal(source[3:9, 5:20], scores()[3:9, 5:20])
    lp.infer_tiled(source, 1.0, tile=16, **OPTIONS).write(tmp_path / "out.zarr")
    assert equal(tmp_path / "out.zarr", whole)


def test_views_of_memory_mapped_files_are_read_correctly(tmp_path: Path) -> None:
    view = as_memmap(tmp_path, scores())[5:, ::-1]
    np.testing.assert_array_equal(np.asarray(as_source(view, "unary")), scores()[5:, ::-1])


def test_changed_file_has_another_fingerprint(tmp_path: Path) -> None:
    source = as_source(as_zarr(tmp_path, scores()), "unary")
    first = fingerprint(source)
    assert first == fingerprint(as_source(open_raster(tmp_path / "scores.zarr"), "unary"))
    zarr.open_array(tmp_path / "scores.zarr", mode="r+")[0, 0, 0] = 7.0
    assert fingerprint(source) != first


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "text.npy", np.array(["a"]))
    (tmp_path / "short.npy").write_bytes(b"x" * 10)
    np.save(tmp_path / "cut.npy", scores())
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-9])
    (tmp_path / "bad.tif").write_bytes(b"II*\0nothing")
    (tmp_path / "bad.zarr").mkdir()
    zarr.create_group(tmp_path / "group.zarr")
    zarr.create_array(tmp_path / "words.zarr", shape=(2,), dtype="U1", zarr_format=2)
    for name, message in (
        ("none.npy", "does not exist"),
        ("text.npy", "expected an array of real numbers"),
        ("short.npy", "damaged or not a .npy file"),
        ("cut.npy", "is damaged: its header claims shape"),
        ("bad.tif", "cannot be read as a TIFF file"),
        ("bad.zarr", "expected .npy, GeoTIFF or zarr"),
        ("group.zarr", "is a group of zarr arrays, expected one array"),
        ("words.zarr", "expected real numbers"),
    ):
        with pytest.raises(InputError, match=message):
            open_raster(tmp_path / name)


def test_other_codecs_are_refused(tmp_path: Path) -> None:
    from numcodecs import Categorize

    zarr.create_array(
        tmp_path / "odd.zarr",
        shape=(4, 4),
        dtype="u1",
        zarr_format=2,
        filters=[Categorize(["a"], "U1")],
        compressors=None,
    )
    with pytest.raises(InputError, match="uses the codec categorize, expected one of"):
        open_raster(tmp_path / "odd.zarr")


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    result = lp.infer_tiled(scores(), 1.0, tile=20, **{**OPTIONS, "seed": np.int64(1)})
    result.write(tmp_path / "twice.zarr", arrays=("entropy", "labels", "labels"))
    assert set(contents(tmp_path / "twice.zarr")) == {"labels", "entropy"}
    for arrays in ((), ("probability",)):
        with pytest.raises(InputError, match=r"arrays is \(.*\), expected at least one that icm provides"):
            lp.infer_tiled(scores(), 1.0, "icm", tile=20, max_sweeps=4).write(tmp_path / "none.zarr", arrays=arrays)
    assert not (tmp_path / "none.zarr").exists()
    weights = np.ones((40, 32), int), np.ones((39, 33), int)
    of_integers = lp.infer_tiled(scores(), weights, tile=20, **OPTIONS).labels.compute()
    np.testing.assert_array_equal(of_integers, lp.infer_tiled(scores(), 1.0, tile=20, **OPTIONS).labels.compute())


def test_copy_on_write_map_is_not_read_from_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", scores())
    changed = np.load(tmp_path / "scores.npy", mmap_mode="c")
    changed *= -1
    found, wanted = (lp.infer_tiled(u, 1.0, tile=20, **OPTIONS).labels.compute() for u in (changed, -scores()))
    np.testing.assert_array_equal(found, wanted)
