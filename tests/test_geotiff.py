"""GeoTIFF files in ``locpmap refine`` and in tiled runs: missing data, nodata tags and georeferences."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError
from locpmap.formats.rasters import Place, check_same_place
from locpmap.scale import open_raster, refine_tiled

rasterio = pytest.importorskip("rasterio")

HEIGHT, WIDTH, K = 24, 32, 3
MAPS = ("labels", "probability", "variance", "entropy")


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return a colour image (H, W, 3) of stripes, and logits (H, W, K)."""
    rng = np.random.default_rng(3)
    labels = np.broadcast_to(np.arange(WIDTH) * K // WIDTH, (HEIGHT, WIDTH))
    image = (labels[..., None] * 70 + rng.integers(1, 40, (HEIGHT, WIDTH, 3))).astype(np.uint8)
    return image, (2 * np.eye(K)[labels] + rng.normal(size=(HEIGHT, WIDTH, K))).astype(np.float32)


def write(path: Path, values: np.ndarray, east: float = 500_000, size: float = 10, **profile: Any) -> Path:
    """Write a GeoTIFF of (H, W, C) with its upper left corner at (east, 5 000 000)."""
    height, width, count = values.shape
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(size, 0, east, 0, -size, 5_000_000), **profile}
    shape = {"height": height, "width": width, "count": count, "dtype": values.dtype.name}
    with rasterio.open(path, "w", driver="GTiff", **shape, **place) as file:
        file.write(np.moveaxis(values, -1, 0))
    return path


@pytest.mark.parametrize("nodata", [np.nan, -9999.0])
@pytest.mark.parametrize("tiled", [False, True])
def test_pixels_without_scores_get_no_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodata: float, tiled: bool
) -> None:
    image, logits = example()
    void = np.zeros((HEIGHT, WIDTH), bool)
    void[3:7, 5:30] = True
    scores = np.where(void[..., None], np.float32(nodata), logits)
    paths = write(tmp_path / "a.tif", image), write(tmp_path / "scores.tif", scores, nodata=nodata)
    out = tmp_path / ("out.zarr" if tiled else "out")
    run = Run(capsys, "refine", *paths, "-o", out, "--scores", "logits", "--keep", ",".join(MAPS))
    assert run.status == 0, run.err
    expected = lp.refine(image, logits, mask=void, scores="logits").labels
    assert (expected == -1).sum() == void.sum()
    if tiled:
        labels = pytest.importorskip("zarr").open(out, mode="r")["labels"]
        assert labels.attrs["nodata"] == -1
        np.testing.assert_array_equal(labels[:], expected)
        return
    for name in MAPS:
        with rasterio.open(out / f"a.{name}.tif") as file:
            assert file.nodata == (255 if name == "labels" else 65535)
            np.testing.assert_array_equal(file.read_masks(1) == 0, void)
            if name == "labels":
                np.testing.assert_array_equal(file.read(1), np.where(void, 255, expected))


def test_missing_scores_are_masked_in_an_image_of_channels_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, logits = example()
    np.save(tmp_path / "a.npy", np.moveaxis(image, -1, 0))
    logits[5, 6] = -9999
    write(tmp_path / "scores.tif", logits, nodata=-9999)
    assert Run(capsys, "refine", tmp_path / "a.npy", tmp_path / "scores.tif", "-o", tmp_path / "out").status == 0
    found = np.asarray(Image.open(tmp_path / "out/a.labels.png"))
    assert found.shape == (HEIGHT, WIDTH)
    assert np.argwhere(found == 255).tolist() == [[5, 6]]


def test_missing_data_of_coarse_scores_covers_whole_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, logits = example()
    coarse = logits.reshape(HEIGHT // 4, 4, WIDTH // 4, 4, K).mean(axis=(1, 3))
    coarse[0, 0] = -9999
    paths = write(tmp_path / "a.tif", image), write(tmp_path / "scores.tif", coarse, size=40, nodata=-9999)
    assert Run(capsys, "refine", *paths, "-o", tmp_path / "out").status == 0
    with rasterio.open(tmp_path / "out/a.labels.tif") as file:
        found = file.read_masks(1) == 0
    assert found[:4, :4].all()
    assert found.sum() == 16


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_nodata_value_is_never_a_valid_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a probability of 1 counts as data, with and without a georeference."""
    image, logits = example()
    np.save(tmp_path / "a.npy", 1000 * logits)
    Image.fromarray(image).save(tmp_path / "plain.png")
    write(tmp_path / "geo.tif", image)
    for name, more in (("plain.png", ["--tiff"]), ("geo.tif", [])):
        words = ["refine", tmp_path / name, tmp_path / "a.npy", "-o", tmp_path / "out", "--keep", ",".join(MAPS)]
        assert Run(capsys, *words, *more).status == 0
        for kind in MAPS:
            with rasterio.open(tmp_path / f"out/{Path(name).stem}.{kind}.tif") as file:
                assert file.nodata == (255 if kind == "labels" else 65535)
                assert file.read_masks(1).all()
                if kind == "probability":
                    assert (file.read(1) == 65534).mean() > 0.5
    many = np.zeros((HEIGHT, WIDTH, 256), np.float32)
    many[..., 255] = 50
    np.save(tmp_path / "many.npy", many)
    assert Run(capsys, "refine", tmp_path / "geo.tif", tmp_path / "many.npy", "-o", tmp_path / "out").status == 0
    with rasterio.open(tmp_path / "out/geo.labels.tif") as file:
        assert (file.nodata, file.read(1).max()) == (65535, 255)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"east": 500_320}, "covers x 500320 to 500640, y 4999760 to 5000000"),
        ({"east": 500_008}, "covers x 500008"),
        ({"size": 20}, "expected scores of the same area"),
        ({"crs": "EPSG:32634"}, "is in the coordinate system EPSG:32634 and"),
    ],
)
@pytest.mark.parametrize("tiled", [False, True])
def test_rasters_of_different_areas_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str, tiled: bool
) -> None:
    image, logits = example()
    paths = write(tmp_path / "a.tif", image), write(tmp_path / "scores.tif", logits, **changes)
    out = tmp_path / ("out.zarr" if tiled else "out")
    Run(capsys, "refine", *paths, "-o", out).check_refusal(words, "a.tif", "scores.tif")
    assert not list(tmp_path.glob("out*/*"))
    if tiled:
        with pytest.raises(InputError, match="expected"):
            refine_tiled(*map(open_raster, paths))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_small_differences_and_missing_georeferences_are_accepted(tmp_path: Path) -> None:
    image, logits = example()
    near = write(tmp_path / "near.tif", logits, east=500_000.001)
    unknown = write(tmp_path / "unknown.tif", logits, crs=None, transform=rasterio.Affine.identity())
    whole = write(tmp_path / "a.tif", image)
    for scores in (near, unknown):
        refine_tiled(open_raster(whole), open_raster(scores))


def test_slices_are_those_of_arrays(tmp_path: Path) -> None:
    pixels, _ = example()
    pixels[::3, ::4] = 0
    raster = open_raster(write(tmp_path / "a.tif", pixels, nodata=0))
    for index in (np.s_[::10], np.s_[:, :5], np.s_[::3, 2:9:2], np.s_[-9:, 20::5]):
        np.testing.assert_array_equal(raster[index], pixels[index])
        np.testing.assert_array_equal(raster.without_data(index), (pixels[index] == 0).all(axis=2))
    np.testing.assert_array_equal(raster[::3, 2:9:2, 1:], pixels[::3, 2:9:2, 1:])
    for wrong in (3, np.s_[:, 3], np.s_[::-1], ...):
        with pytest.raises(InputError, match="expected slices with positive steps"):
            raster[wrong]


def test_tiled_unaries_without_data_are_masked(tmp_path: Path) -> None:
    pytest.importorskip("dask")
    _, unary = example()
    void = np.zeros((HEIGHT, WIDTH), bool)
    void[:9, :9] = True
    path = write(tmp_path / "u.tif", np.where(void[..., None], np.float32(-9999), unary), nodata=-9999)
    mask = np.zeros_like(void)
    mask[20:, :4] = True
    options: dict[str, Any] = {"max_sweeps": 6, "n_samples": 5}
    tiled = lp.infer_tiled(open_raster(path), 0.5, tile=10, mask=mask, **options)
    whole = lp.infer(lp.Potentials.grid(unary, 0.5, mask=void | mask), **options)
    np.testing.assert_array_equal(tiled.labels.compute(scheduler="synchronous"), whole.labels)


def test_corners_may_differ_by_a_coarse_pixel() -> None:
    """Scores of another size may be shifted by the diagonal of their pixels, those of the same size by half of it."""
    image = Place(None, rasterio.Affine(10, 0, 0, 0, -10, 240), 24, 32)
    for side, most in ((40, 40 * np.sqrt(2)), (10, 5 * np.sqrt(2))):
        size = 240 // side, 320 // side
        for shift, fits in ((0.99 * most, True), (1.01 * most, False)):
            scores = Place(None, rasterio.Affine(side, 0, shift, 0, -side, 240), *size)
            with nullcontext() if fits else pytest.raises(InputError, match="expected scores of the same area"):
                check_same_place(image, scores, ("image", "scores"))
