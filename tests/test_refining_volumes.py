"""Refinement and measurement of volumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import locpmap as lp
from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.learning.proper_scores import Truth
from locpmap.measuring.quantities import surface
from locpmap.refining.adapting import lattice
from locpmap.refining.examples import gather
from locpmap.refining.guiding import guided_log_mean, guided_log_mean_at, spheres
from locpmap.refining.reading import read
from locpmap.refining.weights import Weights

SPACING = (2.0, 1.0, 1.0)


def ball(shape: tuple[int, int, int], radius: float, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return a scan, logits and labels of a ball in voxels of 2 × 1 × 1, whose halves have different labels."""
    rng = np.random.default_rng(seed)
    z, y, x = (np.indices(shape) - np.reshape(shape, (3, 1, 1, 1)) / 2 + rng.uniform(-1, 1, (3, 1, 1, 1))) * np.reshape(
        SPACING, (3, 1, 1, 1)
    )
    labels = np.where(x**2 + y**2 + z**2 < radius**2, 1 + (x > 0), 0)
    scan = 50.0 * labels + 5 * rng.normal(size=shape)
    blurred = ndimage.gaussian_filter(np.eye(3)[labels], (1, 2, 2, 0))
    return scan, 8 * blurred + 0.3 * rng.normal(size=blurred.shape), labels


def plain() -> lp.Refiner:
    """Return the bundled refiner without error fields and presence."""
    weights = lp.Refiner.load().weights
    none = {name: np.zeros_like(getattr(weights, name)) for name in ("sizes", "shared", "presence")}
    return lp.Refiner(replace(weights, **none, typical=0.8))


@pytest.mark.parametrize("shape", [(5, 9, 8), (1, 6, 40), (7, 2, 11), (12, 5, 1), (20, 10, 19)])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.0, 1.0, 0.5)])
def test_guided_means_follow_their_definition(shape: tuple[int, ...], spacing: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    scores, image, masked = rng.normal(size=(1, *shape, 2)), rng.random((1, 2, *shape)), rng.random((1, *shape)) < 0.2
    found = guided_log_mean(scores, image, masked, spacing=spacing)[0]
    p = np.exp(scores[0]) / np.exp(scores[0]).sum(-1, keepdims=True)
    inside = ~masked[0]
    variance = image[0][:, inside].var(axis=1).sum()
    for here in np.ndindex(*shape):
        total, weights = p[here].copy(), 1.0
        for step in spheres(spacing):
            there = tuple(int(a + b) for a, b in zip(here, step, strict=True))
            if all(0 <= a < n for a, n in zip(there, shape, strict=True)) and inside[there]:
                weight = np.exp(-((image[0][:, *here] - image[0][:, *there]) ** 2).sum() / (0.1 * variance))
                total, weights = total + weight * p[there], weights + weight
        np.testing.assert_allclose(found[here], np.log(total / weights), rtol=1e-6)


def test_potentials_between_strides_follow_their_definition() -> None:
    """Compare with sums over points on spheres (axes and diagonals) and weights linear in the log of the stride."""
    scan, logits, _ = ball((11, 22, 21), 9)
    logits[3:, 2:] += [0.0, 0.0, -40.0]  # label 2 has a mean below 1e-6
    pairwise = np.arange(8.0).reshape(2, 2, 2)
    weights = Weights([1.0, 8.0], [0.8, 1.4], own=[0.9, 0.6], guided=[0.2, 0.8], pairwise=pairwise)
    found = lp.Refiner(weights).prepare(scan, logits, spacing=SPACING, stride=4.0).potentials
    low, high = 1 / 3, 2 / 3  # log 4 / log 8
    z = (low * 0.8 + high * 1.4) * logits
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    points = [(0, 0, 0)]
    for radius in (4, 16):
        points += [(radius // 2 * sign, 0, 0) for sign in (-1, 1)]
        points += [move for sign in (-1, 1) for move in ((0, radius * sign, 0), (0, 0, radius * sign))]
    for plane, side in ((2, 5), (9, 18)):  # 8 / √3 = 4.6 and 32 / √3 = 18.5
        points += [(plane * a, side * b, side * c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]
    total, count = np.zeros_like(p), np.zeros(scan.shape)
    for here in np.ndindex(*scan.shape):
        for there in (tuple(a + b for a, b in zip(here, point, strict=True)) for point in points):
            if all(0 <= a < n for a, n in zip(there, scan.shape, strict=True)):
                weight = np.exp(-((scan[here] - scan[there]) ** 2) / (0.1 * scan.var()))
                total[here] += weight * p[there]
                count[here] += weight
    g = np.log(np.maximum(total / count[..., None], 1e-6))
    expected = (low * 0.9 + high * 0.6) * z + (low * 0.2 + high * 0.8) * g
    np.testing.assert_allclose(found.unflatten(found.unary), expected, rtol=1e-4, atol=1e-4)
    assert (g == np.log(1e-6)).any()
    constant, factor = (low * pairwise[0] + high * pairwise[1]).mean(axis=0)
    assert found.pairwise.weights is not None
    squares = np.diff(scan, axis=2) ** 2
    edges = constant + factor * np.exp(-squares / (2 * squares.mean()))
    np.testing.assert_allclose(found.pairwise.weights[0].reshape(squares.shape), edges, rtol=1e-4)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (50.0, 4.0, 4.0), (1.0, 300.0, 0.7)])
def test_no_point_is_counted_twice(spacing: tuple[float, ...]) -> None:
    steps = spheres(spacing)
    assert len({(0, 0, 0), *map(tuple, steps.tolist())}) == len(steps) + 1


def test_guided_means_at_some_voxels_are_those_of_all() -> None:
    rng = np.random.default_rng(0)
    scores, image = rng.normal(size=(9, 20, 17, 3)), rng.random((1, 9, 20, 17))
    places = lattice(9, 20, 17)
    expected = guided_log_mean(scores[None], image[None], spacing=SPACING)[0].reshape(-1, 3)[places]
    np.testing.assert_allclose(guided_log_mean_at(scores, image, places, SPACING), expected, rtol=1e-6)
    assert len(places) == 9 * 16 * 16


@pytest.mark.parametrize(
    ("image", "logits", "layout"),
    [
        ((9, 20, 17), (9, 20, 17, 3), "last"),
        ((9, 20, 17), (3, 9, 20, 17), "first"),
        ((9, 20, 17, 2), (9, 20, 17, 3), "last"),
        ((9, 20, 17), (1, 3, 9, 20, 17), "first"),
        ((2, 9, 20, 17), (2, 3, 9, 20, 17), "first"),
        ((8, 20, 16), (4, 10, 8, 3), "last"),
        (None, (3, 12, 20, 17), "first"),
    ],
)
def test_layouts_of_volumes_are_detected(image: Any, logits: Any, layout: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=logits)
    given = read(None if image is None else rng.random(image), values, spacing=SPACING)
    one = values if values.ndim == 5 else values[None]
    np.testing.assert_array_equal(given.scores, (one if layout == "last" else np.moveaxis(one, 1, -1)).astype("f"))
    assert given.spacing == SPACING
    assert len(given.shape) == 3
    assert given.batched == (logits[0] == 2)


@pytest.mark.parametrize(
    ("image", "logits", "spacing", "sentence"),
    [
        ((9, 20, 17), (9, 20, 17, 3), 0, "spacing is 0, expected a number from 1e-12"),
        (
            (9, 20, 17),
            (9, 20, 17, 3),
            (1.0, 0.0, 1.0),
            "spacing is .*, expected a number from 1e-12",
        ),
        (
            (9, 20, 17),
            (9, 20, 17, 3),
            (1.0, np.nan, 1.0),
            "spacing is .*, expected a number from 1e-12",
        ),
        ((9, 20, 17), (9, 20, 17, 3), (1.0, 1.0), "spacing is .*, expected a number from 1e-12"),
        ((9, 20, 17), (9, 20, 17, 3), "1mm", "spacing"),
        ((20, 17), (20, 17, 3), 1.0, r"logits has shape \(20, 17, 3\), expected \(D, H, W, K\)"),
        ((9, 20, 17), (9, 20, 18, 3), 1.0, "9×20×17 voxels .* expected .9, 20, 17, K. or .K, 9, 20, 17. like"),
        ((6, 6, 6), (6, 6, 6, 6), 1.0, r"which may be \(D, H, W, K\) or \(K, D, H, W\): specify layout="),
        ((9, 20, 17), (3, 9, 20, 17), None, "image holds 9 images, expected 3 .*; for one volume, specify spacing="),
        ((9, 20, 17), (1, 3, 9, 20, 17), None, "or spacing= for a volume"),
        (None, (6, 6, 6, 6), 1.0, "without an image, which may be"),
    ],
)
def test_bad_volumes_are_one_sentence(image: Any, logits: Any, spacing: Any, sentence: str) -> None:
    pixels = None if image is None else np.zeros(image)
    with pytest.raises(InputError, match=sentence) as error:
        lp.refine(pixels, np.zeros(logits), spacing=spacing)
    assert "\n" not in str(error.value)


def test_without_spacing_planes_are_independent_images() -> None:
    scan, logits, _ = ball((6, 12, 14), 5)
    slices = lp.refine(scan, logits)
    alone = lp.refine(scan[2], logits[2])
    np.testing.assert_array_equal(slices.labels[2], alone.labels)


def test_a_volume_of_one_plane_is_an_image() -> None:
    logits = 2 * np.random.default_rng(0).normal(size=(13, 17, 3))
    volume = plain().prepare(None, logits[None], spacing=1, layout="dhwk").potentials
    image = plain().prepare(None, logits, layout="hwk").potentials
    np.testing.assert_array_equal(volume.unary, image.unary)
    labels = np.random.default_rng(1).integers(0, 3, (13, 17))
    assert volume.score(labels[None]) == pytest.approx(image.score(labels))


def test_edges_are_weighted_by_contrast_and_spacing() -> None:
    scan, logits, _ = ball((5, 8, 9), 4)
    weights = replace(plain().weights, own=1.0, guided=0.0, adaptation=0.0, pairwise=[[[0.5, 2.0], [1.5, 4.0]]] * 3)
    potentials = lp.Refiner(weights).prepare(scan, logits, spacing=SPACING).potentials
    found = potentials.pairwise.weights
    assert found is not None
    for axis, edges in zip((2, 1, 0), found, strict=True):
        squares = np.diff(scan, axis=axis) ** 2
        alike = np.exp(-squares / (2 * squares.mean()))
        factor = min(SPACING) / SPACING[axis]
        np.testing.assert_allclose(edges.reshape(squares.shape), factor * (1.0 + 3.0 * alike), rtol=1e-4)


def test_refining_a_volume_uses_all_its_planes() -> None:
    scan, logits, labels = ball((16, 24, 24), 9)
    decoder = lp.LocPMAP(20, start="perturbed", keep_samples=True)
    found = lp.refine(scan, logits, spacing=SPACING, decoder=decoder)
    again = lp.refine(scan, np.moveaxis(logits, -1, 0), spacing=SPACING, decoder=decoder)
    assert found.labels.shape == labels.shape
    assert found.probability.shape == logits.shape
    assert found.samples.shape == (20, *labels.shape)
    np.testing.assert_array_equal(found.labels, again.labels)
    np.testing.assert_allclose(found.probability.sum(-1), 1, rtol=1e-5)
    network, refined = ((one == labels).mean() for one in (logits.argmax(-1), found.labels))
    assert refined > network + 0.01


def test_tensors_are_returned_as_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scan, logits, _ = ball((6, 12, 14), 5)
    tensors = torch.from_numpy(scan), torch.from_numpy(logits).movedim(-1, 0)[None]  # (D, H, W) and (1, K, D, H, W)
    found = lp.refine(*tensors, spacing=SPACING)
    assert isinstance(found.labels, torch.Tensor)
    np.testing.assert_array_equal(found.labels.numpy(), lp.refine(scan, logits, spacing=SPACING).labels)


def test_volumes_and_surfaces_have_the_units_of_the_spacing() -> None:
    scan, logits, labels = ball((16, 26, 26), 10)
    decoder = lp.LocPMAP(20, start="perturbed", keep_samples=True)
    result = lp.refine(scan, logits, spacing=SPACING, decoder=decoder)
    volume = lp.measure(result, "volume")
    np.testing.assert_allclose(volume.values, 2 * lp.measure(result, "area").values)
    area = surface((labels > 0).astype(int), 2, SPACING)[1]
    assert area == pytest.approx(4 * np.pi * 10**2, rel=0.05)
    larger = lp.refine(scan, logits, spacing=tuple(3 * side for side in SPACING), decoder=decoder)
    np.testing.assert_allclose(lp.measure(larger, "surface").values, 9 * lp.measure(result, "surface").values)
    with pytest.raises(InputError, match="quantity is 'surface', which needs a volume"):
        lp.Refiner.load().measure(None, logits[0], "surface")


@pytest.mark.parametrize("normal", [(1, 0, 0), (0, 1, 1), (1, 1, 1), (1, 2, 3)])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, 0.5, 3.0)])
def test_the_surface_of_a_plane(normal: tuple[int, ...], spacing: tuple[float, ...]) -> None:
    shape = np.rint(60 / np.array(spacing)).astype(int)
    z, y, x = ((np.arange(n) - (n - 1) / 2) * side for n, side in zip(shape, spacing, strict=True))
    unit = np.array(normal) / np.linalg.norm(normal)
    points = np.stack(np.meshgrid(z, y, x, indexing="ij"))
    height = np.tensordot(unit, points, 1)
    across = np.sqrt(((points - unit[:, None, None, None] * height) ** 2).sum(0))
    cut = np.where(across < 20, (height > 0.01).astype(int), -1)  # a disc in a cylinder; others are masked
    assert surface(cut, 2, spacing)[1] == pytest.approx(np.pi * 20**2, rel=0.2)


def test_windows_of_volumes_are_cubes() -> None:
    labels = np.random.default_rng(0).integers(-1, 3, (17, 9, 20))
    truth = Truth.of(labels, 3)
    areas = truth.areas(truth.labels[None], 8)[0]
    cubes = [labels[z : z + 8, :8, x : x + 8] for z in (0, 8) for x in (0, 8)]
    np.testing.assert_allclose(areas, [[(cube == k).sum() / (cube >= 0).sum() for k in range(3)] for cube in cubes])
    faces = np.zeros(3)
    for axis in range(3):
        a, b = np.delete(labels, 0, axis), np.delete(labels, -1, axis)
        for k in range(3):
            faces[k] += (((a == k) != (b == k)) & (a >= 0) & (b >= 0)).sum()
    np.testing.assert_array_equal(truth.perimeter(labels), faces)


@pytest.fixture(scope="module")
def fitted() -> tuple[lp.Refiner, list[Any]]:
    volumes = [ball((6 + n % 2, 14, 13), 4 + n % 3, seed=n) for n in range(24)]
    scans, logits, labels = (list(each) for each in zip(*volumes, strict=True))
    spacing = [SPACING] * len(volumes)
    return lp.Refiner.fit(scans, logits, labels, spacing=spacing, guarantee=0.5), volumes


def test_a_refiner_is_fitted_on_volumes(fitted: tuple[lp.Refiner, list[Any]], tmp_path: Path) -> None:
    refiner, volumes = fitted
    assert refiner.report is not None
    assert refiner.report.helps
    refiner.report.picture(tmp_path / "report.png")
    refiner.save(tmp_path / "refiner.safetensors")
    loaded = lp.Refiner.load(tmp_path / "refiner.safetensors")
    scan, logits, labels = volumes[0]
    result = loaded.refine(scan, logits, spacing=SPACING)
    np.testing.assert_array_equal(result.labels, refiner.refine(scan, logits, spacing=SPACING).labels)
    assert (result.labels == labels).mean() > (logits.argmax(-1) == labels).mean()
    with pytest.raises(InputError, match="spacing is None and the refiner was fitted on volumes"):
        loaded.refine(scan[0], logits[0])
    of_images = lp.Refiner(refiner.weights, {"fitted_on": ["0123"]})
    with pytest.raises(InputError, match="spacing is given and the refiner was fitted on images"):
        of_images.refine(scan, logits, spacing=SPACING)


@pytest.mark.parametrize("entry", [2.0, None, (1.0, 1.0)])
def test_mixed_spacings_are_read_one_by_one(entry: Any) -> None:
    logits, labels = np.zeros((2, 4, 4, 4, 2)), np.zeros((2, 4, 4, 4), int)
    given = None, logits, labels, -1, "dhwk", "logits", 1.0, [(2.0, 1.0, 1.0), entry]
    if entry == (1.0, 1.0):
        with pytest.raises(InputError, match=r"image 1: spacing is \(1.0, 1.0\), expected a number"):
            gather(*given)
    else:
        assert [example.given.spacing for example in gather(*given)] == [(2.0, 1.0, 1.0), (entry or 1.0,) * 3]


def test_volumes_have_guaranteed_intervals(fitted: tuple[lp.Refiner, list[Any]]) -> None:
    refiner, _ = fitted
    scan, logits, labels = ball((7, 14, 13), 5, seed=100)
    for quantity in ("volume", "surface", "components"):
        low, high = refiner.measure(scan, logits, quantity, spacing=SPACING).interval(0.9, guarantee=refiner)
        assert low.shape == (3,)
        assert (low >= 0).all()
        assert quantity != "volume" or (high <= 2 * labels.size).all()
        in_metres = refiner.measure(scan, logits, quantity, spacing=[side / 1000 for side in SPACING])
        with pytest.raises(InputError, match=r"is 0.002, 0.001, 0.001, and the guarantee holds for 2, 1, 1"):
            in_metres.interval(0.9, guarantee=refiner)
    low, high = refiner.measure(scan, logits, "volume", spacing=SPACING).interval(0.9, guarantee=refiner)
    true = 2 * np.bincount(labels.ravel())
    assert ((low <= true) & (true <= high)).sum() >= 2


def test_presence_that_was_learned_from_areas_is_left_out(tmp_path: Path) -> None:
    volumes = [ball((6, 10, 10), 4, seed=n) for n in range(9)]
    scans, logits, labels = (list(each) for each in zip(*volumes, strict=True))
    bundled = lp.Refiner.load()
    assert bundled.prepare(None, logits[0][0], layout="hwk").fields.presence is not None
    assert bundled.prepare(None, logits[0], layout="dhwk", spacing=SPACING).fields.presence is None

    def area_of_image(labels: Any) -> int:
        return int((labels == 1).sum())

    calibrated = bundled.guaranteed(scans, logits, labels, ["volume", area_of_image], spacing=SPACING)
    assert str(calibrated.guarantee).startswith("Calibrated on 9 volumes: ")
    assert "Intervals of level 0.9 of area_of_image, volume: the true value of a label in a new volume lies" in str(
        calibrated.guarantee
    )
    calibrated.save(tmp_path / "refiner.safetensors")
    loaded = lp.Refiner.load(tmp_path / "refiner.safetensors")
    low, high = loaded.measure(scans[0], logits[0], "volume", spacing=SPACING).interval(0.9, guarantee=loaded)
    assert (low <= high).all()


def test_spacings_of_a_fit_are_one_or_as_many_as_volumes() -> None:
    volumes = [ball((6, 10, 10), 4, seed=n) for n in range(3)]
    scans, logits, labels = (list(each) for each in zip(*volumes, strict=True))
    with pytest.raises(InputError, match="spacing holds 2 entries, expected 3 like logits"):
        lp.Refiner.fit(scans, logits, labels, spacing=[SPACING] * 2)
