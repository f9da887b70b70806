"""Damaged and lost files, full disks and concurrent runs: a clear error, or the same bytes after a rerun."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError
from locpmap.result import entropy_of
from locpmap.scale import open_raster, refine_tiled
from locpmap.scale import store as stores
from locpmap.scale.sources import as_source, fingerprint

zarr = pytest.importorskip("zarr")
da = pytest.importorskip("dask.array")

OPTIONS: dict[str, Any] = {"seed": 3, "max_sweeps": 3, "n_samples": 5, "tile": 16}
NAMES = ("labels", "probability", "variance", "entropy")


def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(40, 33, 3)).astype(np.float32)


def content(path: Path) -> dict[str, bytes]:
    group = zarr.open_group(path, mode="r")
    return {name: group[name][:].tobytes() for name in NAMES}


# inputs


def damaged_chunk(folder: Path, **how: Any) -> Any:
    zarr.create_array(folder / "in.zarr", data=scores(), chunks=(20, 20, 3), **how)
    for file in (folder / "in.zarr").rglob("*"):
        if file.is_file() and not file.name.startswith((".z", "zarr")):
            file.write_bytes(b"nothing of it")
    return open_raster(folder / "in.zarr")


def plain_chunk(folder: Path) -> Any:
    return damaged_chunk(folder, compressors=None)


def gzip_chunk(folder: Path) -> Any:
    return damaged_chunk(folder, compressors=zarr.codecs.GzipCodec())


def old_chunk(folder: Path) -> Any:
    return damaged_chunk(folder, zarr_format=2)


def shard(folder: Path) -> Any:
    return damaged_chunk(folder, shards=(40, 40, 3))


def deleted_file(folder: Path) -> Any:
    np.save(folder / "in.npy", scores())
    source = open_raster(folder / "in.npy")
    (folder / "in.npy").unlink()
    return source


def truncated_file(folder: Path) -> Any:
    np.save(folder / "in.npy", scores())
    source = open_raster(folder / "in.npy")
    (folder / "in.npy").write_bytes((folder / "in.npy").read_bytes()[:500])
    return source


def tiff(folder: Path) -> Any:
    rasterio = pytest.importorskip("rasterio")
    size = {"height": 40, "width": 33, "count": 3, "dtype": "float32", "compress": "deflate"}
    with rasterio.open(folder / "in.tif", "w", driver="GTiff", **size) as file:
        file.write(np.moveaxis(scores(), -1, 0))
    whole = (folder / "in.tif").read_bytes()
    (folder / "in.tif").write_bytes(whole[: len(whole) // 2] + b"\1" * 400 + whole[len(whole) // 2 + 400 :])
    return open_raster(folder / "in.tif")


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    "kind", [damaged_chunk, plain_chunk, gzip_chunk, old_chunk, shard, deleted_file, truncated_file, tiff]
)
def test_unreadable_sources_are_refused_by_name(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    source = kind(tmp_path)
    with pytest.raises(InputError, match=r"in\.(zarr|npy|tif) cannot be read"):
        lp.infer_tiled(source, 1.0, **OPTIONS).labels.compute(scheduler="synchronous")
    with pytest.raises(InputError, match=r"in\.(zarr|npy|tif) cannot be read"):
        lp.infer_tiled(source, 1.0, **OPTIONS).write(tmp_path / "out.zarr")


def test_errors_of_custom_sources_are_not_hidden() -> None:
    class Broken:
        shape, dtype = (40, 33, 3), np.dtype(np.float32)

        def __getitem__(self, index: Any) -> Any:
            raise ValueError("a bug")

    with pytest.raises(ValueError, match=r"^a bug$"):
        lp.infer_tiled(Broken(), 1.0, **OPTIONS).labels.compute(scheduler="synchronous")


def rewrite(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}), "utf-8")


def nested(codec: str) -> dict[str, Any]:
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    configuration = {
        "chunk_shape": [40, 33, 3],
        "codecs": [plain, {"name": codec, "configuration": {"level": 1}}],
        "index_codecs": [plain],
    }
    return {"name": "sharding_indexed", "configuration": configuration}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codecs": [{"name": "bytes"}, {"name": "rot13"}]}, "in.zarr is damaged .*: Unknown codec: 'rot13'"),
        ({"codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"a": 1}}]}, "in.zarr is damaged"),
        ({"codecs": [nested("numcodecs.zlib")]}, "in.zarr uses the codec numcodecs.zlib, expected one of"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 0, 0]}}}, "in.zarr is damaged"),
        ({"data_type": "words"}, "in.zarr is damaged"),
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
def test_zarr_arrays_with_bad_metadata_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    zarr.create_array(tmp_path / "in.zarr", data=scores())
    rewrite(tmp_path / "in.zarr" / "zarr.json", **change)
    with pytest.raises(InputError, match=message):
        open_raster(tmp_path / "in.zarr")


def test_parts_of_one_file_have_different_fingerprints(tmp_path: Path) -> None:
    np.arange(200, dtype=np.float32).tofile(tmp_path / "raw")
    shape: dict[str, Any] = {"shape": (5, 5, 2), "dtype": np.float32, "mode": "r"}
    first, again, other = (np.memmap(tmp_path / "raw", offset=at, **shape) for at in (0, 0, 40))
    names = [fingerprint(as_source(part, "unary")) for part in (first, again, other)]
    assert names[0] == names[1] != names[2]


def test_tensors_and_xarray_objects_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    unary, (right, down) = scores(), (np.ones((40, 32)), np.ones((39, 33)))
    wanted = lp.infer_tiled(unary, (right, down), **OPTIONS).probability.compute()

    class Named:
        """An array with named dimensions, as in xarray."""

        dims, name, data = ("y", "x", "label"), None, da.from_array(unary, 10)

        def __dask_graph__(self) -> None:
            """Make the object look lazy."""

    tensors = (torch.from_numpy(right), torch.from_numpy(down))
    for given, weights in ((torch.from_numpy(unary), tensors), (torch.from_numpy(unary), (1.0, torch.tensor(1.0)))):
        found = lp.infer_tiled(given, weights, **OPTIONS).probability.compute()
        np.testing.assert_array_equal(found, wanted)
    named = lp.infer_tiled(Named(), (right, down), **OPTIONS)
    np.testing.assert_array_equal(named.probability.compute(), wanted)
    assert named.identity()["unary"] == Named.data.name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unary": [[[1, 2], [3]]]}, "unary is ragged"),
        ({"pairwise": [[1, 2, 3], [4]]}, "pairwise is ragged"),
        ({"pairwise": lp.Factored((0, 0), [[[1], [1, 2]]])}, "the tables of Factored is ragged"),
        ({"mask": [[True], [True, False]]}, "mask is ragged"),
        ({"unary": da.zeros((2**25, 2**25, 2), chunks=(2**20, 2**20, 2))}, "33554432×33554432 sites, expected at most"),
        (
            {"unary": da.zeros((2**16, 2**16, 2)), "tile": 2**16},
            "65536×65536 sites, expected fewer than 2.31: see tile",
        ),
        ({"mask": np.ones((40, 33), bool)}, "mask ignores every site, expected at least one that takes part"),
    ],
)
def test_bad_sources_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lp.infer_tiled(**{"unary": scores(), "pairwise": 1.0, **OPTIONS, **given})


def test_lazy_mask_may_ignore_all_sites(tmp_path: Path) -> None:
    mask = da.ones((40, 33), dtype=bool, chunks=9)
    lp.infer_tiled(scores(), 1.0, mask=mask, **OPTIONS).write(tmp_path / "out.zarr")
    assert (zarr.open_group(tmp_path / "out.zarr", mode="r")["labels"][:] == -1).all()
    assert lp.infer_tiled(scores(), 1.0, mask=mask, **OPTIONS).write(tmp_path / "out.zarr").kept == 9


# outputs


def cut(name: str, n_bytes: int | None = None) -> Callable[[Path], None]:
    """Return a function that truncates a file by ``n_bytes``, or to half its size."""

    def damage(out: Path) -> None:
        whole = (out / name).read_bytes()
        (out / name).write_bytes(whole[: len(whole) // 2 if n_bytes is None else -n_bytes])

    return damage


def lose(name: str) -> Callable[[Path], None]:
    return lambda out: (out / name).unlink()


LOSSES: dict[str, tuple[Callable[[Path], Any], int]] = {
    "nothing": (lambda out: None, 9),
    "a chunk of labels": (lose("labels/c/0/1"), 8),
    "a chunk of probabilities": (lose("probability/c/2/2/0"), 8),
    "a mark": (lose("tiles/c/0/0"), 8),
    "half of a chunk": (cut("probability/c/1/1/0"), 8),
    "a byte of a chunk": (cut("labels/c/0/0", 1), 8),
    "a row of chunks": (lambda out: shutil.rmtree(out / "entropy" / "c" / "1"), 6),
    "the content of a chunk": (lambda out: (out / "variance/c/0/0/0").write_bytes(b""), 8),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_tiles_are_decoded_again(tmp_path: Path, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, (lose_it, kept) = tmp_path / "out.zarr", LOSSES[loss]
    mask = np.zeros((40, 33), bool)
    mask[:16, :16] = True  # a fully masked tile also has chunks
    tiled = lp.infer_tiled(scores(), 1.0, mask=mask, **OPTIONS)
    tiled.write(out)
    before = content(out)
    lose_it(out)
    finished: list[bool] = []

    def recording(probability: Any) -> Any:
        finished.append(run_attributes(out)["finished"])
        return entropy_of(probability)

    monkeypatch.setattr(stores, "entropy_of", recording)
    assert tiled.write(out).kept == kept
    assert content(out) == before
    assert finished == [False] * (9 - kept)
    assert run_attributes(out)["finished"]


def run_attributes(out: Path) -> dict[str, Any]:
    return dict(zarr.open_group(out, mode="r").attrs["locpmap"])


def attributes(value: Any) -> Callable[[Path], None]:
    return lambda out: rewrite(out / "zarr.json", attributes=value)


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda out: shutil.rmtree(out / "tiles"), "out.zarr is damaged: its array tiles differs"),
    (lambda out: (out / "tiles/c/0/0").write_bytes(b"x"), "out.zarr is damaged: its array tiles differs"),
    (
        lambda out: (out / "tiles/zarr.json").write_text("[]", "utf-8"),
        "out.zarr is damaged: its array tiles differs",
    ),
    (
        lambda out: (out / "labels/zarr.json").write_text("{", "utf-8"),
        "out.zarr is damaged: its array labels differs",
    ),
    (lambda out: rewrite(out / "labels/zarr.json", shape=[3, 3]), "out.zarr is damaged: its array labels differs"),
    (lambda out: (out / "zarr.json").write_text("{", "utf-8"), "out.zarr exists and does not hold a tiled run"),
    (lambda out: (out / "zarr.json").write_text("[]", "utf-8"), "out.zarr exists and does not hold a tiled run"),
    (attributes({"locpmap": 5}), "out.zarr exists and does not hold a tiled run"),
    (attributes({"locpmap": {"run": 5}}), "out.zarr exists and does not hold a tiled run"),
    (attributes({"locpmap": {"run": {}}}), "its shape is None"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_outputs_are_refused(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    out, tiled = tmp_path / "out.zarr", lp.infer_tiled(scores(), 1.0, **OPTIONS)
    tiled.write(out)
    damage(out)
    with pytest.raises(InputError, match=message):
        tiled.write(out)


def test_full_disk_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stores, "entropy_of", full)
        with pytest.raises(InputError, match=r"out\.zarr cannot be written: No space left on device"):
            lp.infer_tiled(scores(), 1.0, **OPTIONS).write(tmp_path / "out.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(zarr.Group, "create_array", full)
        with pytest.raises(InputError, match=r"new\.zarr cannot be written: No space left on device"):
            lp.infer_tiled(scores(), 1.0, **OPTIONS).write(tmp_path / "new.zarr")
    assert [file.name for file in tmp_path.iterdir()] == ["out.zarr"]


def test_concurrent_runs_share_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, tiled = tmp_path / "out.zarr", lp.infer_tiled(scores(), 1.0, **OPTIONS)
    tiled.write(out)
    monkeypatch.setattr("os.path.exists", lambda path: False)  # as a second run sees it that starts at the same time
    assert tiled.write(out).kept == 9
    with pytest.raises(InputError, match="its seed is 3, expected 4"):
        lp.infer_tiled(scores(), 1.0, **{**OPTIONS, "seed": 4}).write(out)
    assert [file.name for file in tmp_path.iterdir()] == ["out.zarr"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"max_sweeps": 3}, {"max_sweeps": np.int64(3)}),
        ({"pairwise": 1}, {"pairwise": np.float32(1)}),
        ({"pairwise": (1, 2)}, {"pairwise": (1.0, np.int8(2))}),
        ({"pairwise": (np.ones((40, 32)), 1)}, {"pairwise": (np.ones((40, 32), int), 1.0)}),
        ({"pairwise": np.eye(3)}, {"pairwise": np.eye(3, dtype=int).tolist()}),
        ({"temperature": 1}, {"temperature": np.float32(1)}),
        ({"blocks": (2, 2)}, {"blocks": (np.int64(2), 2)}),
        ({"connectivity": ((0, 1), (1, 0))}, {"connectivity": ((0, 1), (1, 0))}),
        ({"connectivity": 8}, {"connectivity": np.int64(8)}),
    ],
)
def test_equal_options_of_other_types_are_the_same_run(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    for given, kept in ((first, 0), (second, 9), (first, 9)):
        tiled = lp.infer_tiled(**{"unary": scores(), "pairwise": 1.0, **OPTIONS, **given})
        assert tiled.write(tmp_path / "out.zarr").kept == kept


def test_equal_refiner_options_of_other_types_are_the_same_run(tmp_path: Path) -> None:
    strength: Any
    for strength in (np.float32(1), 1):
        refine_tiled(None, scores(), lp.Refiner.load().adjusted(strength=strength)).write(tmp_path / "out.zarr")
    with pytest.raises(InputError, match=r"its refining is \{'strength': 1.0\}, expected \{'strength': 0.5\};"):
        refine_tiled(None, scores(), lp.Refiner.load().adjusted(strength=0.5)).write(tmp_path / "out.zarr")


def test_error_shows_only_the_options_that_differ(tmp_path: Path) -> None:
    lp.infer_tiled(scores(), 1.0, **OPTIONS).write(tmp_path / "out.zarr")
    with pytest.raises(InputError, match=r"its options is \{'temperature': 1.0\}, expected \{'temperature': 1.125\};"):
        lp.infer_tiled(scores(), 1.0, temperature=1.125, **OPTIONS).write(tmp_path / "out.zarr")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_threads": 0}, "n_threads is 0, expected a whole number of at least 1"),
        ({"n_threads": 1.5}, "n_threads is 1.5, expected a whole number"),
        ({"progress": 5}, r"progress is 5, expected True, False or a function of \(done, total, rate\)"),
        ({"arrays": "labels"}, "arrays is 'labels', expected several names"),
        ({"arrays": None}, "arrays is None, expected several names"),
        ({"path": "x" * 300}, "cannot be written: File name too long"),
        ({"path": "/".join(["x" * 200] * 30)}, "cannot be written: there is no folder"),
    ],
)
def test_bad_requests_write_nothing(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    request = {"path": "out.zarr", **given}
    with pytest.raises((InputError, lp.errors.InputTypeError), match=message):
        lp.infer_tiled(scores(), 1.0, **OPTIONS).write(tmp_path / request.pop("path"), **request)
    assert not list(tmp_path.iterdir())


def test_names_that_are_too_long_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_raster(tmp_path / ("x" * 300 + ".zarr"))


# the command


def group(folder: Path) -> Path:
    zarr.create_group(folder / "big.zarr").create_array("logits", data=scores(), chunks=(20, 20, 3))
    return folder / "big.zarr"


def test_command_refuses_damaged_inputs_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big, out = group(tmp_path), tmp_path / "out.zarr"
    for name in ("image", "mask"):
        zarr.open_group(big).create_group(name)
        Run(capsys, "refine", big, "-o", out).check_refusal(f"{name} is a group of zarr arrays, expected one array")
        shutil.rmtree(big / name)
    for name in ("logits", "."):
        (big / name / "zarr.json").rename(tmp_path / "kept")
        (big / name / "zarr.json").write_text("[]", "utf-8")
        Run(capsys, "refine", big, "-o", out).check_refusal("big.zarr", "is damaged or has another format")
        (tmp_path / "kept").rename(big / name / "zarr.json")
    (big / "logits/c/0/0/0").write_bytes(b"x")
    Run(capsys, "refine", big, "-o", out).check_refusal("big.zarr/logits cannot be read")
    shutil.rmtree(big / "logits")
    zarr.open_group(big).create_group("logits")
    Run(capsys, "refine", big, "-o", out).check_refusal("logits is a group of zarr arrays")
    assert not out.exists()


def test_command_writes_nothing_if_it_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    big = group(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for inside in (big / "out.zarr", big / "logits" / "out.zarr"):
        Run(capsys, "refine", big, "-o", inside).check_refusal("is also an input")
    Run(capsys, "refine", big, "-o", tmp_path / ("x" * 300 + ".zarr")).check_refusal("File name too long")
    if not torch.cuda.is_available():
        Run(capsys, "refine", big, "-o", tmp_path / "out.zarr", "--device", "cuda").check_refusal("need an NVIDIA GPU")
    assert sorted(tmp_path.rglob("*")) == before
