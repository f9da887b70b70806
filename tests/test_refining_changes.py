"""What a result says about the labels that refinement changed, and the units of volumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

import locpmap as lp
from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.pictures import label_colours, widest_slice, write_slices
from locpmap.refining import resize

STRIDE = 8


def scene(seed: int = 0) -> tuple[Array, Array]:
    """Return an image (48, 64, 3) of two halves and coarse logits (6, 8, 3) that cannot follow their border."""
    rng = np.random.default_rng(seed)
    truth = (np.arange(64) >= 29).astype(int) * np.ones((48, 1), int)
    image = np.array([[10, 20, 200], [200, 90, 10]])[truth] + rng.normal(size=(48, 64, 3))
    return image, 6 * np.eye(3)[truth].reshape(6, 8, 8, 8, 3).mean((1, 3)) + rng.normal(size=(6, 8, 3))


def of_network(logits: Array) -> Array:
    return resize(logits[None].astype(np.float32), 48, 64)[0].argmax(-1)


def noise(*shape: int) -> tuple[Array, Array]:
    """Return an image and logits that have nothing to do with each other."""
    rng = np.random.default_rng(1)
    return rng.normal(size=shape), rng.normal(size=(*shape, 3))


def test_changed_labels_are_counted() -> None:
    image, logits = scene()
    result = lp.refine(image, logits)
    n = int((result.labels != of_network(logits)).sum())
    assert n > 0
    assert result.n_changed == n
    assert result.changes == f"{n} of 3,072 pixels have another label than the network's"
    assert repr(result).endswith(f"; {result.changes}>")
    tensors = lp.refine(image, torch.from_numpy(logits), layout="hwk")
    assert (type(tensors.labels), tensors.n_changed) == (torch.Tensor, n)


@pytest.mark.parametrize(("n_images", "shared"), [(None, False), (2, False), (2, True)])
def test_no_reason_is_given_if_pixels_were_left_out(n_images: int | None, shared: bool) -> None:
    image, logits = scene()
    mask = np.zeros(image.shape[:2], bool)
    mask[:4] = True
    if n_images:
        image, logits = (np.stack([one] * n_images) for one in (image, logits))
        mask = mask if shared else np.stack([mask] * n_images)
    result = lp.refine(image, logits, mask=mask)
    assert result.origin is not None
    same = np.where(result.labels == result.origin.labels, result.labels, -1)
    assert replace(result, labels=same).changes.endswith(" has another label than the network's")
    assert ": similar" in replace(result, labels=np.where(mask, -1, result.origin.labels)).changes


def test_masked_pixels_do_not_count() -> None:
    image, logits = scene()
    mask = np.zeros((48, 64), bool)
    mask[:40] = True
    result = lp.refine(image, logits, mask=mask)
    assert result.n_changed == int((result.labels != of_network(logits))[40:].sum())
    assert "of 512 pixels" in result.changes


def test_images_of_a_batch_are_counted_one_by_one() -> None:
    (first, scores), (second, others) = scene(), noise(48, 64)
    batch = np.stack([first, np.repeat(second[..., None], 3, -1)]), np.stack([of_size(scores), others])
    result = lp.refine(*batch)
    own = [lp.refine(image, logits).n_changed for image, logits in zip(*batch, strict=True)]
    assert result.n_changed.tolist() == own
    assert own[0] > 0
    assert own[1] == 0
    assert result.changes.startswith(f"{own[0]} of 6,144 pixels in 2 images have")


def of_size(scores: Array) -> Array:
    return resize(scores[None], 48, 64)[0]


def test_no_change_has_a_reason() -> None:
    kept = "pixels of similar colour do not predict each other's labels well, so the network's labels are kept"
    assert kept in lp.refine(*noise(32, 32)).changes
    volume = lp.refine(*noise(9, 10, 11), spacing=1)
    assert volume.n_changed == 0
    assert volume.changes.startswith("none of 990 voxels has another label than the network's: voxels of similar inten")
    sure = 9 * np.eye(3)[of_network(scene()[1])]
    assert lp.refine(scene()[0], sure, lp.Refiner.load().adjusted(strength=0.0)).changes.endswith(
        "the refiner does not use similar pixels"
    )
    assert lp.refine(None, sure).changes.endswith("similar and neighbouring pixels agree with the network's labels")
    planes = lp.refine(*noise(9, 32, 32))  # a forgotten spacing
    assert "none of 9,216 pixels in 9 images" in planes.changes
    assert lp.infer(lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0)).changes == ""


SCAN, SCORES = noise(8, 9, 10)
SIDES = (2.0, 1.0, 0.5)


def as_nifti(values: Array, sides: tuple[float, ...] = SIDES) -> Any:
    return nibabel.Nifti1Image(values.astype(np.float32), np.diag([*sides, 1.0]))


def sides_of(result: lp.Result) -> Any:
    return getattr(result.potentials.structure, "spacing", None)


def same(first: lp.Result, second: lp.Result) -> bool:
    return np.array_equal(first.probability, second.probability)


def test_images_of_nibabel_carry_their_spacing() -> None:
    expected = lp.refine(SCAN.astype(np.float32), SCORES.astype(np.float32), spacing=SIDES)
    assert sides_of(expected) == SIDES
    for image, logits in ((as_nifti(SCAN), as_nifti(SCORES)), (as_nifti(SCAN), SCORES), (SCAN, as_nifti(SCORES))):
        found = lp.refine(image, logits)
        assert sides_of(found) == SIDES
        assert same(found, expected)
    with pytest.raises(InputError, match=r"logits lies .* mm from image at a corner"):
        lp.refine(as_nifti(SCAN), as_nifti(SCORES, (1.0, 1.0, 1.0)))


def test_volumes_of_monai_carry_their_spacing() -> None:
    data = pytest.importorskip("monai.data")
    affine = torch.diag(torch.tensor([*SIDES, 1.0]))
    image, logits = torch.from_numpy(SCAN)[None], torch.from_numpy(np.moveaxis(SCORES, -1, 0).copy())
    found = lp.refine(data.MetaTensor(image, affine=affine), data.MetaTensor(logits, affine=affine))
    assert sides_of(found) == SIDES
    assert same(found, lp.refine(image, logits, spacing=SIDES))


def test_the_layout_of_a_volume_stands_for_cubes() -> None:
    keep = lp.LocPMAP(4, keep_samples=True)
    found, spaced = (lp.refine(SCAN, SCORES, decoder=keep, **how) for how in ({"layout": "dhwk"}, {"spacing": 1}))
    assert sides_of(found) is None
    assert sides_of(spaced) == (1.0, 1.0, 1.0)
    assert same(found, spaced)
    assert lp.measure(found, "volume").unit == "voxels"
    assert lp.measure(spaced, "volume").unit == "cubic units of the spacing (mm³ for mm)"


def test_units_of_measurements() -> None:
    keep = lp.LocPMAP(4, keep_samples=True)
    cubes = lp.infer(lp.Potentials.volume(np.zeros((2, 3, 4, 2)), 0.0), keep)
    spaced = lp.infer(lp.Potentials.volume(np.zeros((2, 3, 4, 2)), 0.0, spacing=SIDES), keep)
    units = {
        (cubes, "volume"): "voxels",
        (cubes, "surface"): "faces of voxels, which are taken as cubes",
        (cubes, "area"): "voxels",
        (spaced, "volume"): "cubic units of the spacing (mm³ for mm)",
        (spaced, "surface"): "square units of the spacing (mm² for mm)",
        (spaced, "components"): "",
        (lp.refine(*noise(6, 7), decoder=keep), "area"): "pixels",
    }
    for (result, quantity), unit in units.items():
        found = lp.measure(result, quantity)
        assert found.unit == unit
        assert repr(found).splitlines()[0] == f"{quantity}{' in ' * bool(unit)}{unit}, 4 samples"
        assert repr(found).splitlines()[1].startswith("label")


def test_slices_show_the_largest_part_and_a_legend_of_its_labels(tmp_path: Path) -> None:
    labels = np.ones((20, 20, 20), int)  # 1 is the most frequent label
    labels[2:5, 14:16, 3:9] = 3
    labels[3, 10:18, 3:9] = 3
    labels[12, 2, 15] = 2  # in none of the three slices
    assert [widest_slice(labels, axis) for axis in range(3)] == [3, 15, 6]
    assert widest_slice(np.zeros((5, 6), int), 1) == 3
    write_slices(tmp_path / "a.png", np.zeros(labels.shape), labels, np.zeros(labels.shape), 4, (1.0, 1.0, 1.0))
    picture = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    legend = {tuple(row) for row in picture[-18:].reshape(-1, 3).tolist()}
    assert [tuple(colour) in legend for colour in label_colours(4).tolist()] == [False, True, False, True]


@pytest.mark.parametrize("spacing", [(0.01, 1.0, 100.0), (1e-9, 1.0, 1.0), (1.0, 1.0, 1e9)])
def test_slices_of_extreme_voxels_have_a_bounded_size(tmp_path: Path, spacing: tuple[float, ...]) -> None:
    labels = np.arange(16 * 12 * 8).reshape(16, 12, 8) % 2
    write_slices(tmp_path / "a.png", labels, labels, np.zeros(labels.shape), 2, spacing)
    height, width, _ = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).shape
    assert width <= 3 * 2048 + 16
    assert height <= 2048 + 2 * 18
    write_slices(tmp_path / "b.png", labels, labels, np.zeros(labels.shape), 2, (10.0, 20.0, 30.0))
    picture = np.asarray(Image.open(tmp_path / "b.png").convert("RGB"))
    assert picture.shape == (24 * 6 + 2 * 18, 3 * 160 + 16, 3)  # 24 × 24 pixels each, enlarged 6 times
