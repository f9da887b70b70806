"""Tiled refinement: results do not depend on the tile size, and agree with `lp.refine`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError
from locpmap.refining.weights import Weights
from locpmap.scale import refine_tiled
from locpmap.scale import workers as crews
from locpmap.scale.whole_raster import BAND, Palette

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")

HEIGHT, WIDTH, K = 45, 52, 4


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return a colour image (H, W, 3) of diagonal stripes, and logits (H, W, 4)."""
    rng = np.random.default_rng(1)
    labels = (np.arange(HEIGHT)[:, None] + np.arange(WIDTH)) // 12 % K
    image = (labels[..., None] * 60 + rng.integers(0, 40, (HEIGHT, WIDTH, 3))).astype(np.uint8)
    return image, (2 * np.eye(K)[labels] + 2 * rng.normal(size=(HEIGHT, WIDTH, K))).astype(np.float32)


def refiner(guided: float = 0.5) -> lp.Refiner:
    """Return a refiner with constant and colour-dependent Potts weights and a guided mean."""
    learned = ([1.0], [1.1], [1 - guided], [guided], [[[0.6, 1.5], [0.4, 1.2]]], [0.8, 0.8])
    return lp.Refiner(Weights(*(np.array(values) for values in learned)))


@pytest.mark.parametrize("guided", [0.0, 0.5])
@pytest.mark.parametrize("stride", [1.0, 7.0])
def test_results_do_not_depend_on_the_tile_size(guided: float, stride: float) -> None:
    image, logits = example()
    decoder = lp.LocPMAP(n_samples=9, start="perturbed", max_sweeps=2)
    options: dict[str, Any] = {"decoder": decoder, "seed": 4, "stride": stride}
    whole = refine_tiled(image, logits, refiner(guided), tile=1000, **options).probability.compute()
    for tile in (11, (16, 60)):
        tiled = refine_tiled(da.from_array(image, 17), logits, refiner(guided), tile=tile, **options)
        np.testing.assert_array_equal(tiled.probability.compute(scheduler="synchronous"), whole)


def test_tiled_refinement_matches_refine() -> None:
    """Allow for rounding of the colour statistics; all climbs converge within 32 sweeps."""
    image, logits = example()
    decoder = lp.LocPMAP(n_samples=20, start="perturbed", max_sweeps=32)
    expected = lp.refine(image, logits, refiner(), stride=5.0, decoder=decoder, seed=2)
    tiled = refine_tiled(image, logits, refiner(), stride=5.0, decoder=decoder, seed=2, tile=30)
    assert bool(tiled.converged.all())
    np.testing.assert_allclose(tiled.probability.compute(), expected.probability, atol=2e-4)
    assert (tiled.labels.compute() == expected.labels).mean() > 0.999


def test_refinement_without_image_or_coupling_matches_refine() -> None:
    _, logits = example()
    alone = lp.Refiner(Weights([1.0], [1.2]))
    expected = lp.refine(None, logits, alone, layout="hwk", seed=2)
    tiled = refine_tiled(None, logits, alone, seed=2, tile=20)
    np.testing.assert_array_equal(tiled.probability.compute(), expected.probability)
    assert tiled.decoding.decoder.n_samples == 1  # type: ignore[attr-defined]
    soft = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = lp.refine(None, soft, layout="hwk", seed=2)
    np.testing.assert_array_equal(refine_tiled(None, soft, seed=2, tile=20).probability.compute(), expected.probability)


def test_pixels_without_data_are_ignored() -> None:
    image, logits = example()
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[:30, 20:] = True
    bad_image, bad_logits = image.astype(np.float64), logits.copy()
    bad_image[mask], bad_logits[mask] = np.nan, np.nan
    options: dict[str, Any] = {"decoder": lp.LocPMAP(start="perturbed", max_sweeps=2), "tile": 15, "mask": mask}
    found = refine_tiled(bad_image, bad_logits, refiner(0.0), **options)
    other = refine_tiled(np.where(mask[..., None], 250, image), logits, refiner(0.0), **options)
    np.testing.assert_array_equal(found.probability.compute(), other.probability.compute())
    assert (found.labels.compute()[mask] == -1).all()
    nothing = np.ones((HEIGHT, WIDTH), bool)
    with pytest.raises(InputError, match="mask ignores every site, expected at least one"):
        refine_tiled(None, logits, mask=nothing)
    with pytest.raises(InputError, match="mask ignores every pixel"):
        refine_tiled(image, logits, refiner(), mask=da.from_array(nothing), scores="logits")
    with pytest.raises(InputError, match="scores is 'auto', and the raster's first corner has no data"):
        refine_tiled(image, logits, refiner(), mask=da.from_array(nothing))


def test_palette_does_not_depend_on_the_band_size(monkeypatch: pytest.MonkeyPatch) -> None:
    image = example()[0].astype(np.float64)
    scaled = (image - (image.min((0, 1)) + image.max((0, 1))) / 2) / ((image.max((0, 1)) - image.min((0, 1))) / 2).max()
    for band in (BAND, 7, 1):
        monkeypatch.setattr("locpmap.scale.whole_raster.BAND", band)
        palette = Palette.of(image)
        np.testing.assert_allclose(palette.scaled(image, None)[0], np.moveaxis(scaled, -1, 0), atol=1e-6)
        assert palette.whole.variance == pytest.approx(scaled.var((0, 1)).sum())
        right, down = (
            ((scaled[a] - scaled[b]) ** 2).sum(-1).mean()
            for a, b in ((np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:], np.s_[:-1]))
        )
        assert palette.whole.squares == pytest.approx((right, down))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros((3, 3))}, r"image has shape \(3, 3\), expected \(45, 52\) like logits"),
        ({"logits": np.zeros((3, 3))}, r"logits has shape \(3, 3\), expected \(H, W, K\)"),
        ({"logits": np.zeros((45, 52, 1))}, "logits has one label"),
        ({"logits": np.ma.masked_equal(np.zeros((45, 52, 2)), 0)}, "logits is a masked array.*: pass a mask as mask="),
        ({"image": np.ma.masked_equal(np.zeros((45, 52)), 0)}, "image is a masked array.*: pass a mask as mask="),
        ({"mask": np.zeros((45, 52))}, "mask has dtype float64, expected booleans"),
        ({"mask": np.zeros((52, 45), bool)}, r"mask has shape \(52, 45\), expected \(45, 52\) like logits"),
        ({"stride": 0.5}, "stride is 0.5"),
        ({"scores": "logit"}, "unknown scores 'logit': did you mean 'logits'"),
        ({"decoder": lp.LocPMAP(blocks="rows")}, "blocks is 'rows', which reach across the whole raster"),
        ({"image": np.full((45, 52), np.nan)}, "image contains a number that is not finite"),
    ],
)
def test_bad_input_is_refused_before_decoding(change: dict[str, Any], message: str) -> None:
    image, logits = example()
    given = {"image": image, "logits": logits, "model": refiner(), **change}
    with pytest.raises(InputError, match=message):
        refine_tiled(**given)


# the command


def group(folder: Path) -> Path:
    image, logits = example()
    raster = zarr.create_group(folder / "big.zarr")
    raster.create_array("image", data=image, chunks=(20, 20, 3))
    raster.create_array("logits", data=logits, chunks=(20, 20, 4))
    refiner().save(folder / "model.safetensors")
    return folder / "big.zarr"


def test_command_refines_a_zarr_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big, out, model = group(tmp_path), tmp_path / "out.zarr", tmp_path / "model.safetensors"
    words = ("refine", big, "-o", out, "--model", model, "--tile", 16, "--n-samples", 5, "--stride", 3)
    run = Run(capsys, *words)
    assert run.status == 0, run.err
    assert "12 tiles in" in run.out
    image, logits = example()
    expected = refine_tiled(image, logits, model, decoder=lp.LocPMAP(5, start="perturbed", max_sweeps=32), stride=3.0)
    np.testing.assert_array_equal(zarr.open_group(out, mode="r")["labels"][:], expected.labels.compute())
    again = json.loads(Run(capsys, *words, "--json").out)
    assert (again["kept"], again["pixels"]) == (12, 0)
    Run(capsys, *words, "--seed", 9).check_refusal("holds another run", "its seed is 0, expected 9")


def test_command_refines_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, logits = example()
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "logits.npy", logits)
    run = Run(capsys, "refine", tmp_path / "image.npy", tmp_path / "logits.npy", "-o", tmp_path / "out.zarr")
    assert run.status == 0, run.err
    expected = refine_tiled(image, logits).entropy.compute()
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "out.zarr", mode="r")["entropy"][:], expected)


def test_command_keeps_arrays_and_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, logits = example()
    np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "logits.npy", logits)
    words = ("refine", tmp_path / "image.npy", tmp_path / "logits.npy", "--n-samples", 5, "-o")

    def arrays(name: str, *more: object) -> set[str]:
        run = Run(capsys, *words, tmp_path / name, *more)
        assert run.status == 0, run.err
        return set(zarr.open_group(tmp_path / name, mode="r").array_keys()) - {"tiles"}

    assert arrays("default.zarr") == {"labels", "entropy"}
    assert arrays("variance.zarr", "--keep", "variance,labels") == {"labels", "variance"}
    assert arrays("iou.zarr", "--keep", "labels", "--decide", "iou") == {"labels", "probability", "decided"}
    decided = zarr.open_group(tmp_path / "iou.zarr", mode="r")["decided"][:]
    probability = refine_tiled(image, logits, decoder=lp.LocPMAP(5, start="perturbed", max_sweeps=32)).probability
    decider = lp.Decider("iou").add(probability.compute())
    slope, offset, expected = decider.rule
    np.testing.assert_array_equal(decided, (slope * probability.compute() + offset).argmax(-1))
    report = json.loads(Run(capsys, *words, tmp_path / "iou.zarr", "--keep", "labels", "--decide", "iou", "--json").out)
    assert report["decision"] == {"measure": "iou", "expected": pytest.approx(expected)}
    out = tmp_path / "overlay.zarr"
    Run(capsys, *words, out, "--keep", "overlay").check_refusal("--keep overlay is given, expected none for")
    Run(capsys, *words, out, "--names", tmp_path / "n.txt").check_refusal("--names is given, expected none for")


def test_command_refuses_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "CONNECT_SECONDS", 1)
    big, out = group(tmp_path), tmp_path / "out.zarr"
    zarr.create_group(tmp_path / "empty.zarr")
    before = sorted(tmp_path.iterdir())
    Run(capsys, "refine", big, "-o", tmp_path / "out").check_refusal("expected a name that ends in .zarr")
    Run(capsys, "refine", big, "-o", out, "--tiff").check_refusal("--tiff is given")
    Run(capsys, "refine", big, "-o", out, "--samples", 2).check_refusal("--samples is given, expected none for")
    for over in ("image", "foo"):
        Run(capsys, "refine", big, "-o", out, "--over", over).check_refusal("--over is given, expected none for")
    Run(capsys, "refine", big, "-o", out, "--layout", "khw").check_refusal("--layout is khw, expected hwk")
    Run(capsys, "refine", big, "-o", out, "--blocks", "rows").check_refusal("blocks is 'rows', which reach across")
    Run(capsys, "refine", big, "-o", big).check_refusal("is also an input")
    Run(capsys, "refine", tmp_path / "none.zarr", "-o", out).check_refusal("LOGITS is missing")
    Run(capsys, "refine", tmp_path / "empty.zarr", "-o", out).check_refusal("holds no array 'logits'")
    Run(capsys, "refine", tmp_path / "model.safetensors", "-o", tmp_path / "out").check_refusal("LOGITS is missing")
    unreachable = Run(capsys, "refine", big, "-o", out, "--scheduler", "tcp://127.0.0.1:1")
    unreachable.check_refusal("scheduler tcp://127.0.0.1:1 does not answer")
    assert sorted(tmp_path.iterdir()) == before


def test_windows_contain_all_similar_pixels() -> None:
    """Use a raster that is larger than the rings of similar pixels."""
    rng = np.random.default_rng(0)
    image, logits = rng.integers(0, 9, (150, 170)), rng.normal(size=(150, 170, 2)).astype(np.float32)
    decoder = lp.LocPMAP(n_samples=2, start="perturbed", max_sweeps=1)
    whole, tiled = (
        refine_tiled(image, logits, refiner(0.5), tile=tile, decoder=decoder).probability.compute()
        for tile in (1000, 20)
    )
    np.testing.assert_array_equal(tiled, whole)


def test_mask_excludes_scores_and_colours_as_in_refine() -> None:
    image, logits = example()
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[:20, 30:] = True
    image = np.where(mask[..., None], -9999.0, image)
    how: dict[str, Any] = {"mask": mask, "decoder": lp.LocPMAP(20, start="perturbed", max_sweeps=32), "seed": 2}
    expected = lp.refine(image, logits, refiner(), **how).probability
    found = refine_tiled(image, logits, refiner(), **how).probability.compute()
    np.testing.assert_allclose(found[~mask], expected[~mask], atol=2e-3)


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_variance_of_the_palette_is_precise_for_large_offsets(offset: float) -> None:
    image, _ = example()
    palette = Palette.of(image + offset)
    variance = (image.reshape(-1, 3) / palette.half).var(axis=0).sum()
    assert palette.whole.variance == pytest.approx(variance, rel=1e-6)


def test_extreme_colour_ranges_are_refused() -> None:
    image, logits = example()
    with pytest.raises(InputError, match="image spans"):
        refine_tiled(image * 1e160, logits, refiner()).probability.compute()


def test_geotiff_is_refined_to_zarr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rasterio = pytest.importorskip("rasterio")
    image, logits = example()
    size = {"height": HEIGHT, "width": WIDTH, "count": 3, "dtype": "uint8"}
    with rasterio.open(tmp_path / "in.tif", "w", driver="GTiff", transform=rasterio.Affine.scale(10.0), **size) as file:
        file.write(np.moveaxis(image, -1, 0))
    np.save(tmp_path / "logits.npy", logits)
    run = Run(capsys, "refine", tmp_path / "in.tif", tmp_path / "logits.npy", "-o", tmp_path / "out.zarr")
    assert run.status == 0
    expected = lp.refine(image, logits, stride=1.0).labels
    assert (zarr.open(tmp_path / "out.zarr")["labels"][:] == expected).mean() > 0.999


def test_areas_are_counted_in_every_sample() -> None:
    """Without coupling and error fields one sample has the same probabilities as many, but not the same areas."""
    image, logits = example()
    model = lp.Refiner(
        Weights(*(np.array(values) for values in ([1.0], [1.0], [1.0], [0.0], [[[0.0] * 2] * 2], [0.8] * 2)))
    )
    decoder = lp.LocPMAP(6, start="perturbed", keep_samples=True)
    whole = lp.refine(image, logits, model, stride=1.0, decoder=decoder)
    areas = refine_tiled(image, logits, model, decoder=decoder, tile=20).areas.compute()
    np.testing.assert_array_equal(areas, lp.measure(whole, "area").values)
