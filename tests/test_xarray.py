"""Arrays with named dimensions give the results of plain ones, with coordinates, map units and lazy tiles."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.integrations import refine_xarray
from locpmap.refining.labelled import pixel_area
from locpmap.scale import refine_tiled

xr = pytest.importorskip("xarray")

H, W, STRIDE = 24, 40, 4
COVER = ["grass", "roof", "water"]
DECODER = lp.LocPMAP(30, start="perturbed", max_sweeps=32)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Return an image (H, W, 3) and logits (H, W, 3)."""
    rng = np.random.default_rng(0)
    truth = np.zeros((H, W), int)
    truth[5:17, 12:30] = 1
    image = truth[..., None] * (90, 40, 60) + rng.integers(0, 30, (H, W, 3))
    return image.astype(np.uint8), 2 * np.eye(3)[truth] + rng.normal(size=(H, W, 3))


def coordinates(step: float = 10.0, n: tuple[int, int] = (H, W)) -> dict[str, Any]:
    """Return coordinates of pixel centres: y falls from 5,000,000 and x grows from 0 at the outer edges."""
    return {"y": 5e6 - step * (0.5 + np.arange(n[0])), "x": step * (0.5 + np.arange(n[1]))}


def labelled(place: dict[str, Any] | None = None, stride: int = 1) -> tuple[Any, Any]:
    """Return a scene (band, y, x) and scores (cover, y, x) with coordinates, the scores at a stride."""
    image, logits = arrays()
    place = coordinates() if place is None else place
    scene = xr.DataArray(image, place, ("y", "x", "band")).transpose("band", "y", "x")
    coarse = logits.reshape(H // stride, stride, W // stride, stride, 3).mean(axis=(1, 3))
    there = coordinates(10.0 * stride, coarse.shape[:2]) | {"cover": COVER}
    return scene, xr.DataArray(coarse, there, ("y", "x", "cover")).transpose("cover", "y", "x")


@pytest.mark.parametrize("stride", [1, STRIDE])
def test_dataset_has_the_values_of_refine_and_the_coordinates_of_the_image(stride: int) -> None:
    image, _ = arrays()
    scene, scores = labelled(stride=stride)
    scene = scene.assign_coords(spatial_ref=0, time="2026", wavelength=("band", [1, 2, 3]))
    plain = scores.transpose("y", "x", "cover").values
    expected = lp.refine(image, plain, decoder=lp.LocPMAP(start="perturbed", keep_samples=True))
    found = refine_xarray(scene, scores)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.probability, expected.probability)
    np.testing.assert_array_equal(found.entropy, expected.entropy)
    assert found.probability.dims == ("y", "x", "cover")
    assert set(found.coords) == {"y", "x", "cover", "spatial_ref", "time"}
    assert found.cover.values.tolist() == COVER
    xr.testing.assert_equal(found.y, scene.y.reset_coords(drop=True).assign_coords(spatial_ref=0, time="2026"))
    low, high = lp.measure(expected, "area").interval(0.9)
    np.testing.assert_allclose(found.area_low, 100 * low)
    np.testing.assert_allclose(found.area_high, 100 * high)
    np.testing.assert_allclose(found.area, 100 * np.median(lp.measure(expected, "area").values, axis=0))
    assert found.area.attrs == {"units": "map unit²", "level": 0.9}


def test_order_of_dimensions_has_no_influence() -> None:
    pytest.importorskip("dask")
    image, logits = arrays()
    mask = np.zeros((H, W), bool)
    mask[:, :5] = True
    scene, scores = labelled()
    expected = lp.refine(image, logits, mask=mask)
    named = xr.DataArray(mask, dims=("lat", "lon")).transpose("lon", "lat")
    for dims in (("x", "band", "y"), ("y", "band", "x")):
        found = lp.refine(scene.transpose(*dims), scores.transpose("x", "cover", "y"), mask=named)
        np.testing.assert_array_equal(found.probability, expected.probability)
    found = refine_xarray(scene, scores.rename(y="Latitude", x="Longitude"), mask=named)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.labels.dims == ("y", "x")
    tiled = refine_tiled(scene, scores, mask=named, tile=16)
    np.testing.assert_array_equal(tiled.labels.compute(), expected.labels)
    square = xr.DataArray(np.arange(2.0 * 9 * 9).reshape(2, 9, 9) % 7, dims=("cover", "x", "y"))
    turned = lp.refine(None, square).labels  # the shape alone does not tell rows from columns
    np.testing.assert_array_equal(turned, lp.refine(None, square.values.transpose(2, 1, 0)).labels)


def test_scores_without_an_image_keep_their_coordinates() -> None:
    scores = labelled()[1]
    found = refine_xarray(None, scores.isel(cover=slice(2)))
    np.testing.assert_array_equal(found.probability, lp.refine(None, arrays()[1][..., :2]).probability)
    np.testing.assert_array_equal(found.y, scores.y)


def test_dask_arrays_give_lazy_variables_with_the_same_values() -> None:
    dask = pytest.importorskip("dask")
    image, logits = arrays()
    mask = xr.DataArray(np.arange(W) < 6, dims="x").expand_dims(y=H).chunk(x=10)
    scene, scores = labelled()
    lazy = refine_xarray(scene.chunk(y=12), scores.chunk(x=20), mask=mask, tile=16, decoder=DECODER, seed=2)
    assert all(dask.is_dask_collection(variable.data) for variable in lazy.data_vars.values())
    assert lazy.labels.chunks == ((16, 8), (16, 16, 8))
    kept = lp.LocPMAP(30, start="perturbed", max_sweeps=32, keep_samples=True)
    expected = lp.refine(image, logits, mask=mask.values, decoder=kept, seed=2)
    found = lazy.compute(scheduler="synchronous")
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.probability, expected.probability, atol=1e-5)
    area = lp.measure(expected, "area")
    np.testing.assert_allclose(found.area, 100 * np.median(area.values, axis=0))
    np.testing.assert_allclose(np.stack([found.area_low, found.area_high]), 100 * np.stack(area.interval(0.9)))


@pytest.mark.parametrize("lazy", [False, True])
def test_pixels_with_nan_are_masked(lazy: bool) -> None:
    if lazy:
        pytest.importorskip("dask")
    image, logits = arrays()
    scene, scores = labelled()
    given = np.zeros((H, W), bool)
    given[:, -3:] = True
    empty = given.copy()
    empty[:4, :5] = empty[20:, 2] = True
    scene = scene.astype(np.float32).where(~xr.DataArray(empty & (np.arange(W) > 3), dims=("y", "x")))
    scores = scores.where(~xr.DataArray(empty & (np.arange(W) <= 3), dims=("y", "x")))
    options: dict[str, Any] = {"decoder": DECODER, "mask": xr.DataArray(given, dims=("y", "x"))}
    found = refine_xarray(scene.chunk() if lazy else scene, scores, **options).compute(scheduler="synchronous")
    assert ((found.labels == -1) == empty).all()
    one = refine_xarray(scene, scores, **options | {"decoder": replace(DECODER, n_samples=1)})
    assert one.area.sum() == pytest.approx(100 * (~empty).sum())
    expected = lp.refine(image, logits, mask=empty, decoder=DECODER)
    assert (found.labels == expected.labels).mean() > 0.99  # colours are scaled by other statistics
    with pytest.raises(InputError, match="mask has dtype float64, expected booleans"):
        refine_xarray(scene, scores, mask=np.zeros((H, W)))
    with pytest.raises(InputError, match="mask"):
        refine_xarray(scene * np.nan, scores)


@pytest.mark.parametrize(
    ("place", "attributes", "area", "unit"),
    [
        (coordinates(2.5), {}, 6.25, "map unit²"),
        ({"y": 10.0 * np.arange(H)}, {"transform": (3, 0, 9, 0, -4, 8, 0, 0, 1)}, 12.0, "map unit²"),
        ({}, {"transform": (3, 4, 0, 4, -3, 0)}, 25.0, "map unit²"),  # rotated
        ({"spatial_ref": ((), 0, {"GeoTransform": "5e5 10.0 0.0 5e6 0.0 -20.0"})}, {}, 200.0, "map unit²"),
        ({}, {}, 1.0, "pixels"),
    ],
)
def test_pixel_area(place: dict[str, Any], attributes: dict[str, Any], area: float, unit: str) -> None:
    assert pixel_area(xr.DataArray(np.zeros((H, W)), place, ("y", "x"), attrs=attributes)) == (area, unit)


def test_units_of_coordinates_are_named() -> None:
    scene, scores = labelled()
    for dim in ("y", "x"):
        scene[dim].attrs["units"] = "m"
    assert refine_xarray(scene, scores).area.units == "m²"


def test_rounded_coordinates_are_regular() -> None:
    rounded = {dim: values.astype(np.float32) for dim, values in coordinates(2.3).items()}  # y is rounded to 0.5
    area, _ = pixel_area(xr.DataArray(np.zeros((H, W)), rounded, ("y", "x")))
    assert area == pytest.approx(2.3**2, rel=0.5 / 2.3 / (H - 1))


SCENE, SCORES = labelled()
UNEVEN = SCENE.assign_coords(y=np.arange(H) ** 2)
MORE = SCENE.expand_dims("time")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((SCENE, SCORES.rename(y="line")), {}, r"logits has the dimensions \('cover', 'line', 'x'\), expected"),
        ((SCENE, SCORES.isel(cover=0)), {}, "logits has the dimensions .*, and one of labels"),
        ((MORE, SCORES), {}, "image has the dimensions .*, and at most one of bands"),
        ((SCENE, SCORES.rename(cover="lat")), {}, "logits has the dimensions"),
        ((SCENE, SCORES.assign_coords(x=SCORES.x + 6)), {}, "logits covers x from 6 to 406 and image from 0 to 400"),
        ((SCENE, SCORES.assign_coords(x=1.2 * SCORES.x)), {}, "logits covers x from 0 to 480 and image from 0 to 400"),
        ((SCENE, SCORES.isel(y=slice(None, None, -1))), {}, "logits covers y from 4999760 to 5000000 and image from"),
        ((UNEVEN, SCORES), {}, "the coordinate y is not regular, expected numbers in equal steps"),
        ((SCENE.assign_coords(x=["a"] * W), SCORES), {}, "the coordinate x is not regular"),
        ((SCENE.assign_coords(x=np.zeros(W)), SCORES), {}, "the coordinate x is not regular"),
        ((SCENE, SCORES), {"mask": xr.DataArray(np.ones(W, bool), dims="x")}, "mask has the .*, and no other"),
        ((SCENE, SCORES), {"level": 1.0}, "level is 1.0"),
        ((SCENE.drop_vars("x").assign_attrs(transform=3), SCORES), {}, "transform of the image is 3, expected six"),
        ((SCENE, SCORES.rename(cover="labels")), {}, "'labels' is a dimension or coordinate, expected another name"),
        ((SCENE.assign_coords(area=1), SCORES), {}, "'area' is a dimension or coordinate"),
        ((SCENE.isel(y=slice(12)), SCORES.drop_vars("y")), {}, "logits has shape"),
    ],
)
def test_bad_arrays_are_refused_in_one_sentence(arguments: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        refine_xarray(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_names_that_do_not_match_are_refused_by_refine_too() -> None:
    with pytest.raises(InputError, match="logits has the dimensions"):
        lp.refine(SCENE, SCORES.rename(y="line"))
    with pytest.raises(InputError, match="logits covers x"):
        lp.refine(SCENE, SCORES.assign_coords(x=SCORES.x + 6))


def test_other_types_are_refused() -> None:
    image, logits = arrays()
    with pytest.raises(InputTypeError, match=r"image is a ndarray, expected an xarray\.DataArray"):
        refine_xarray(image, SCORES)
    with pytest.raises(InputTypeError, match="logits is a Dataset, expected"):
        refine_xarray(SCENE, SCORES.to_dataset(name="scores"))
    with pytest.raises(InputTypeError, match="logits is a ndarray"):
        refine_xarray(SCENE, logits)
    with pytest.raises(InputTypeError, match="decoder is 'icm', expected a LocPMAP"):
        refine_xarray(SCENE, SCORES, decoder="icm")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match=r"refine_xarray got the option 'sed', expected .*, seed, .*progress$"):
        refine_xarray(SCENE, SCORES, sed=1)
    with pytest.raises(InputTypeError, match=r"got the option 'progress', expected .*, tile with dask arrays"):
        refine_xarray(SCENE.chunk(), SCORES, progress=print)
    with pytest.raises(InputError, match=r"image has shape .*, expected \(6, 10\) like logits"):
        refine_xarray(SCENE.chunk(), labelled(stride=STRIDE)[1])


def test_xarray_is_not_imported_for_plain_arrays() -> None:
    code = "import sys, numpy as np, locpmap as lp, locpmap.integrations\nlp.refine(None, np.zeros((9, 9, 2)))"
    subprocess.run([sys.executable, "-c", f"{code}\nassert 'xarray' not in sys.modules"], check=True, timeout=120)
