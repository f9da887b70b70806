"""`Refined` in pipelines of MONAI: channels first, metadata kept, files written with their affine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import locpmap as lp
from locpmap.errors import InputError, InputTypeError
from locpmap.integrations import Refined

H, W, STRIDE = 48, 64, 4


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return an image (1, H, W) with a bright disc, and the disc (H, W)."""
    rows, columns = np.mgrid[:H, :W]
    disc = (rows - 24) ** 2 + (columns - 30) ** 2 < 200
    noise = np.random.default_rng(0).normal(size=(1, H, W))
    return (disc + 0.1 * noise).astype(np.float32), disc


def network(images: torch.Tensor) -> torch.Tensor:
    """Return logits (N, 2, H / 4, W / 4) for images (N, 1, H, W)."""
    mean = torch.nn.functional.avg_pool2d(images, STRIDE)
    return torch.cat([4 - 8 * mean, 8 * mean - 4], 1)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_items_have_the_values_of_refine(kind: Any, channels: int) -> None:
    image = np.concatenate([example()[0]] * channels)
    logits = network(torch.from_numpy(image[None, :1]))[0].numpy()
    data = {"image": kind(image), "pred": kind(logits), "name": "a"}
    found = Refined(keys=["pred"], seed=3)(data)
    expected = lp.refine(np.moveaxis(image, 0, -1), np.moveaxis(logits, 0, -1), seed=3)
    np.testing.assert_array_equal(np.asarray(found["pred"]), expected.labels[None])
    np.testing.assert_array_equal(np.moveaxis(np.asarray(found["pred_probability"]), 0, -1), expected.probability)
    np.testing.assert_array_equal(np.asarray(found["pred_entropy"]), expected.entropy[None])
    assert isinstance(found["pred"], torch.Tensor) == (kind is torch.as_tensor)
    assert data["pred"] is not found["pred"]
    assert found["name"] == "a"
    assert set(data) == {"image", "pred", "name"}


def test_pipeline_with_the_real_monai_keeps_metadata(tmp_path: Path) -> None:
    """Load NIfTI slices, predict a batch, refine each example, save it, and read the file."""
    nibabel = pytest.importorskip("nibabel")
    monai = pytest.importorskip("monai")
    transforms = monai.transforms
    image, disc = example()
    affine = np.diag([0.8, 1.2, 3.0, 1.0])
    affine[:3, 3] = 5, 6, 7
    for name in ("first", "second"):
        nibabel.save(nibabel.Nifti1Image(image[0], affine), tmp_path / f"{name}.nii.gz")
    load = transforms.Compose(
        [
            transforms.LoadImaged("image", ensure_channel_first=True),
            transforms.Flipd("image", spatial_axis=0),
        ]
    )
    files = [{"image": tmp_path / f"{name}.nii.gz"} for name in ("first", "second")]
    batch = next(iter(monai.data.DataLoader(monai.data.Dataset(files, load), batch_size=2)))
    batch["pred"] = network(batch["image"])
    save = transforms.SaveImaged("pred", output_dir=tmp_path, separate_folder=False, print_log=False)
    undo = transforms.Invertd("pred", load, "image", nearest_interp=True)
    refine = transforms.Compose([Refined(keys="pred"), undo, save])
    for name, item in zip(("first", "second"), monai.data.decollate_batch(batch), strict=True):
        found = refine(item)
        soft = found["pred_probability"]
        assert isinstance(soft, monai.data.MetaTensor)
        assert soft.shape == (2, H, W)
        assert soft.meta["filename_or_obj"] == str(tmp_path / f"{name}.nii.gz")
        np.testing.assert_array_equal(soft.affine, item["image"].affine)  # not that of the coarse logits
        assert (found["pred"].numpy()[0] == disc).mean() > 0.98  # Invertd has undone the flip
        saved = nibabel.load(tmp_path / f"{name}_trans.nii.gz")
        np.testing.assert_allclose(saved.affine[:2], affine[:2], atol=1e-6)  # MONAI keeps two dimensions of a 2-D file


@pytest.mark.parametrize("kind", ["array", "tensor", "file"])
def test_volumes_have_the_values_of_refine(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    planes, rows, columns = np.ogrid[:16, :18, :12]
    ball = (planes - 8) ** 2 + (rows - 8) ** 2 + (columns - 8) ** 2 < 30
    scan = (ball + 0.1 * rng.normal(size=ball.shape)).astype(np.float32)
    logits = np.stack([2 - 4 * scan, 4 * scan - 2]) + 0.5 * rng.normal(size=(2, *ball.shape)).astype(np.float32)
    spacing: Any = {"array": 1.0, "tensor": (2.0, 1.0, 0.5), "file": (0.8, 1.2, 3.0)}[kind]
    weights = lp.Refiner.load().weights
    none = {name: np.zeros_like(getattr(weights, name)) for name in ("sizes", "shared", "presence")}
    refiner = lp.Refiner(replace(weights, **none))  # without error fields
    transform: Any = Refined("pred", model=refiner, spacing=spacing if kind == "tensor" else None)
    data: dict[str, Any] = {"pred": logits, "image": scan[None]}
    if kind == "tensor":
        data = {key: torch.from_numpy(value) for key, value in data.items()}
    if kind == "file":
        nibabel, monai = pytest.importorskip("nibabel"), pytest.importorskip("monai")
        affine = np.diag([*spacing, 1.0])
        nibabel.save(nibabel.Nifti1Image(scan, affine), tmp_path / "scan.nii.gz")
        data["image"] = tmp_path / "scan.nii.gz"
        load = monai.transforms.LoadImaged("image", ensure_channel_first=True)
        transform = monai.transforms.Compose([load, transform])
    found = transform(data)
    expected = lp.refine(scan, np.moveaxis(logits, 0, -1), refiner, spacing=spacing)
    np.testing.assert_array_equal(np.asarray(found["pred"])[0], expected.labels)
    np.testing.assert_allclose(
        np.moveaxis(np.asarray(found["pred_probability"]), 0, -1), expected.probability, atol=1e-6
    )
    if kind == "file":
        np.testing.assert_allclose(found["pred_entropy"].affine, affine)


def test_metadata_of_the_image_come_first() -> None:
    data = pytest.importorskip("monai.data")
    logits = data.MetaTensor(torch.randn(2, H, W), affine=torch.diag(torch.tensor([2.0, 3.0, 1.0, 1.0])))
    found = Refined("pred", image_key=None)({"pred": logits})
    np.testing.assert_array_equal(found["pred"].affine, logits.affine)
    image = data.MetaTensor(torch.zeros(1, H, W), affine=logits.affine, meta={"filename_or_obj": "a.png"})
    found = Refined("pred")({"pred": logits, "image": image})
    assert found["pred"].meta["filename_or_obj"] == "a.png"
    plain = Refined("pred", image_key="image")({"pred": logits.as_tensor(), "image": torch.zeros(1, H, W)})
    assert type(plain["pred"]) is torch.Tensor


@pytest.mark.parametrize("size", [(H, W), (6, 8, 10)])
def test_different_affines_are_refused(size: tuple[int, ...]) -> None:
    data = pytest.importorskip("monai.data")
    image, logits = data.MetaTensor(torch.zeros(1, *size)), torch.randn(2, *size)
    other = data.MetaTensor(logits)
    other.affine[0, 3] = 0.009  # rounding of less than 1 % of a voxel
    Refined("pred")({"image": image, "pred": other})
    other.affine[0, 3] = 0.5
    with pytest.raises(InputError, match=r"^'pred' lies 0.5 mm from 'image' at a corner, expected the same affine"):
        Refined("pred")({"image": image, "pred": other})
    with pytest.raises(InputError, match=r"^logits lies 0.5 mm from image"):
        lp.refine(image, other)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"pred": np.zeros((2, H, W))}, r"data has no key 'image', expected it among \['pred'\]"),
        ({"image": np.zeros((1, H, W))}, "data has no key 'pred'"),
        ({"image": np.zeros((1, H, W)), "pred": np.zeros((2, 4, H, W))}, "logits has shape .* and the image has"),
        ({"image": np.zeros((1, 4, H, W)), "pred": np.zeros((2, H, W))}, "image has shape"),
        (
            {"image": np.zeros((1, 1, 4, H, W)), "pred": np.zeros((1, 2, 4, H, W))},
            "'pred' has .*, expected one example",
        ),
        ({"image": np.zeros((H, W)), "pred": np.zeros((2, H, W))}, "'image' has shape .*, expected one example"),
        ({"image": "a.png", "pred": np.zeros((2, H, W))}, r"'image' has shape \(\), expected one example"),
        ({"image": np.zeros((1, H, W)), "pred": np.zeros((1, H, W))}, "logits has one label"),
    ],
)
def test_bad_data_are_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Refined(keys="pred")(data)
    assert "\n" not in str(caught.value)


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputTypeError, match="data is a list"):
        Refined(keys="pred")([1])  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="model is a int"):
        Refined(keys="pred", model=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="decoder is icm, which returns no probabilities"):
        Refined(keys="pred", image_key=None, decoder="icm")({"pred": np.zeros((2, H, W))})


def test_monai_is_not_imported() -> None:
    code = """
import sys, numpy as np
from locpmap.integrations import Refined
Refined(keys="pred", image_key=None)({"pred": np.zeros((2, 9, 9))})
assert not {"monai", "torch"} & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
