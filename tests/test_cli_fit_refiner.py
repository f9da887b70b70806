"""``locpmap fit-refiner``: a refiner from folders of images, logits and true labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.cli.fit_refiner import _read as read_example
from locpmap.cli.refine_inputs import Content

N, SIDE = 12, 16
VOID = 255


def examples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images (N, H, W, 3), noisy logits (N, H, W, 2) and labels (N, H, W) with a void row."""
    rng = np.random.default_rng(5)
    labels = np.stack([np.roll(np.repeat([[0, 1]] * SIDE, SIDE // 2, axis=1), k, axis=1) for k in range(N)])
    images = np.repeat((labels * 200).astype(np.uint8)[..., None], 3, axis=3)
    logits = (np.eye(2)[labels] + 0.7 * rng.normal(size=(*labels.shape, 2))).astype(np.float32)
    labels = labels.copy()
    labels[:, 0] = VOID
    return images, logits, labels


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write the examples to the folders images, logits and labels; there is one more label map than images."""
    for name in ("images", "logits", "labels"):
        (tmp_path / name).mkdir()
    for k, (image, scores, truth) in enumerate(zip(*examples(), strict=True)):
        Image.fromarray(image).save(tmp_path / "images" / f"{k:02}.png")
        np.save(tmp_path / "logits" / f"{k:02}.npy", scores)
        Image.fromarray(truth.astype(np.uint8)).save(tmp_path / "labels" / f"{k:02}.png")
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "labels" / "other.png")
    return tmp_path


def words(data: Path, *more: object) -> list[object]:
    inputs = (data / "images", data / "logits", "--labels", data / "labels", "-o", data / "mine.safetensors")
    return ["fit-refiner", *inputs, "--ignore-label", VOID, *more]


def test_fit_of_folders_equals_fit_of_arrays(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(capsys, *words(data, "--seed", 3))
    assert (run.status, run.err) == (0, "")
    expected = lp.Refiner.fit(*examples(), ignore_label=VOID, seed=3)
    assert run.out == f"{expected.report}\n\nwritten {data / 'mine.safetensors'}\n"
    found = lp.Refiner.load(data / "mine.safetensors")
    assert found.weights.identity(found.adjustment) == expected.weights.identity(expected.adjustment)
    image, logits, out = data / "images/00.png", data / "logits/00.npy", data / "out"
    options = ("--model", data / "mine.safetensors", "--keep", "probability")
    assert Run(capsys, "refine", image, logits, "-o", out, *options).status == 0
    result = lp.refine(examples()[0][0], examples()[1][0], expected)
    np.testing.assert_array_equal(np.load(out / "00.probability.npy"), result.probability)


def test_guarantee_and_one_folder(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (data / "logits").iterdir():
        path.rename(data / "images" / path.name)
    command = words(data, "--guarantee", 0.75, "--json")
    del command[2]
    run = Run(capsys, *command)
    assert run.status == 0, run.err
    report = json.loads(run.out)
    assert report["calibration_images"] == 9
    assert report["report"]["says"].startswith("Refinement")
    guarantee = lp.Refiner.load(data / "mine.safetensors").guarantee
    assert guarantee is not None
    assert guarantee.n_images == 9
    out, model = data / "out", data / "mine.safetensors"
    shown = Run(capsys, "refine", data / "images/00.png", data / "images/00.npy", "-o", out, "--model", model).out
    assert "90% interval, guaranteed" in shown


def remove(name: str) -> Any:
    return lambda data: (data / name).unlink()


@pytest.mark.parametrize(
    ("change", "more", "parts"),
    [
        (remove("labels/03.png"), (), ("images/03.png has no true labels in", "expected 03.npy or 03.png there")),
        (remove("logits/03.npy"), (), ("03.png has no partner in",)),
        (None, ("--ignore-label", -1), ("labels/00.png contains 255, expected 0 to 1, or --ignore-label 255 for",)),
        (None, ("--guarantee", 0.5), ("guarantee is 0.5, which is 6 of 12 labelled images, expected at least 9",)),
        (None, ("--layout", "kwh"), ("unknown layout 'kwh'", "'khw'")),
        (None, ("--seed", -1), ("seed is -1",)),
        (None, ("--labels", "nowhere"), ("--labels nowhere does not exist, expected a folder",)),
        (
            lambda data: np.save(data / "logits/05.npy", np.full((SIDE, SIDE, 2), np.nan)),
            (),
            ("logits/05.npy: ", "nan"),
        ),
        (
            lambda data: Image.fromarray(np.zeros((3, 4), np.uint8)).save(data / "labels/07.png"),
            (),
            ("labels/07.png has shape (3, 4), expected (16, 16) like the image",),
        ),
        (
            lambda data: (data / "mine.safetensors").write_text("notes"),
            (),
            ("mine.safetensors is not a model file of locpmap, expected a new file or a model to replace",),
        ),
    ],
)
def test_bad_input_is_refused(
    change: Any, more: tuple[object, ...], parts: tuple[str, ...], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if change is not None:
        change(data)
    before = sorted(data.rglob("*"))
    Run(capsys, *words(data, *more)).check_refusal(*parts)
    assert sorted(data.rglob("*")) == before


def test_files_in_place_of_folders_are_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image, logits = data / "images/00.png", data / "logits/00.npy"
    command = ["fit-refiner", image, logits, "--labels", data / "labels", "-o", data / "mine.safetensors"]
    Run(capsys, *command).check_refusal(f"IMAGES {image} is a file, expected a folder")


def test_pixels_without_data_have_no_true_label(tmp_path: Path) -> None:
    truth, masked = np.arange(6, dtype=np.uint8).reshape(2, 3), np.zeros((2, 3), bool)
    masked[1, 2] = True
    Image.fromarray(truth).save(tmp_path / "a.png")
    content = Content(np.zeros(0), np.zeros(0), masked)
    pair: Any = SimpleNamespace(read=lambda: content)
    _, _, true, _ = read_example(pair, tmp_path / "a.png", VOID)
    np.testing.assert_array_equal(true, np.where(masked, VOID, truth))
