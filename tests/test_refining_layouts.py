"""Sizes and layouts of images and scores: matching shapes are read, others raise an error with the sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.command import Run

import locpmap as lp
from locpmap.errors import InputError
from locpmap.formats.images import read_image
from locpmap.refining.reading import read

ROTATED = 6  # EXIF orientation: rotated by 90 degrees


@pytest.mark.parametrize(
    ("image", "logits", "layout"),
    [
        ((480, 640, 3), (512, 512, 2), "auto"),
        ((480, 640, 3), (512, 640, 3), "auto"),  # not 512 labels for 480 channels of 640×3
        ((480, 640, 3), (480, 640, 3), "khw"),
        ((64, 64, 3), (64, 64, 3), "khw"),
        ((480, 640, 3), (640, 480, 3), "hwk"),
        ((480, 640, 3), (480, 320, 5), "hwk"),
        ((2, 48, 64, 3), (2, 51, 51, 2), "auto"),
        ((2, 48, 64, 3), (2, 51, 64, 3), "auto"),
        ((3, 48, 64), (3, 48, 60), "auto"),  # channels first; the scores have another width
    ],
)
@pytest.mark.parametrize("tensor", [False, True])
def test_scores_of_another_size_are_refused(image: Any, logits: Any, layout: str, tensor: bool) -> None:
    pixels, scores = np.zeros(image, np.uint8), np.zeros(logits, np.float32)
    arguments = (torch.from_numpy(pixels), torch.from_numpy(scores)) if tensor else (pixels, scores)
    one = image[-3:]
    height, width = one[1:] if one[0] == 3 else one[:2]
    with pytest.raises(InputError) as caught:
        lp.refine(*arguments, layout=layout)
    sentence = str(caught.value)
    assert f"logits has shape {logits[-3:]} and the image has {height}×{width} pixels with 3 channels" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("image", "logits", "question"),
    [
        ((480, 640, 3), (640, 480, 5), " (are height and width swapped?)"),
        ((480, 640, 3), (60, 80, 5), None),
        ((60, 80, 5), (480, 640, 3), " (are image and logits swapped?)"),
        ((480, 640, 3), (512, 512, 2), ""),
    ],
)
def test_sentences_guess_what_was_swapped(
    image: tuple[int, ...], logits: tuple[int, ...], question: str | None
) -> None:
    if question is None:
        lp.refine(np.zeros(image, np.uint8), np.zeros(logits))
        return
    with pytest.raises(InputError) as caught:
        lp.refine(np.zeros(image, np.uint8), np.zeros(logits))
    assert str(caught.value).endswith(f"smaller by one stride{question}")


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the shapes of an image and of strided scores, each in a layout, with or without a batch axis."""
    height, width = draw(st.integers(24, 90)), draw(st.integers(24, 90))
    stride = draw(st.sampled_from([1, 2, 4]))
    return {
        "n": draw(st.sampled_from([None, 2])),
        "size": (height, width),
        "scores": (-(-height // stride), -(-width // stride)),
        "channels": draw(st.sampled_from([None, 1, 3, 4])),
        "labels": draw(st.integers(2, 5)),
        "layout": draw(st.sampled_from(["hwk", "khw"])),
        "named": draw(st.booleans()),
        "in_front": draw(st.booleans()),
        "tensor": draw(st.booleans()),
    }


def arrays(case: dict[str, Any]) -> tuple[Any, Any]:
    """Return an image and scores of the drawn shapes, with a different value for each label."""
    batch = () if case["n"] is None else (case["n"],)
    pixels = np.arange(np.prod(case["size"])).reshape(case["size"])
    pixels = np.broadcast_to(pixels, (*batch, *case["size"]))
    if case["channels"] is not None:
        axis = len(batch) if case["in_front"] else -1
        pixels = np.stack([pixels] * case["channels"], axis=axis)
    scores = np.broadcast_to(2 * np.arange(case["labels"], dtype=np.float32), (*batch, *case["scores"], case["labels"]))
    scores = scores if case["layout"] == "hwk" else np.moveaxis(scores, -1, len(batch))
    if case["tensor"]:
        return torch.from_numpy(pixels.copy()), torch.from_numpy(scores.copy())
    return pixels, scores


def outcome(image: Any, logits: Any, layout: str) -> tuple[Any, str]:
    """Return what `read` returned, or None, and the error message, if any."""
    try:
        return read(image, logits, layout, "logits"), ""
    except InputError as error:
        return None, str(error)


@given(shapes())
@settings(max_examples=150, deadline=None)
def test_matching_shapes_are_read_correctly(case: dict[str, Any]) -> None:
    image, logits = arrays(case)
    found, sentence = outcome(image, logits, case["layout"] if case["named"] else "auto")
    if found is None:
        assert not case["named"]
        assert "specify layout=" in sentence  # small scores may match both layouts
        found = read(image, logits, case["layout"], "logits")
    n = case["n"] or 1
    assert found.shape == case["size"]
    assert found.batched == (case["n"] is not None)
    assert found.image.shape == (n, case["channels"] or 1, *case["size"])
    assert found.scores.shape == (n, *case["scores"], case["labels"])
    assert (found.scores == 2 * np.arange(case["labels"])).all()
    ramp = np.asarray(found.image)[0, 0].ravel()
    assert (np.diff(ramp) > 0).all()  # rows are in order


@given(shapes(), st.integers(-40, 40), st.integers(-40, 40), st.sampled_from(["auto", "hwk", "khw"]))
@settings(max_examples=250, deadline=None)
def test_layout_of_the_image_does_not_depend_on_the_scores(
    case: dict[str, Any], taller: int, wider: int, layout: str
) -> None:
    h, w = case["scores"]
    case = {**case, "scores": (max(2, h + taller), max(2, w + wider))}
    image, logits = arrays(case)
    found, sentence = outcome(image, logits, layout)
    if found is None:
        height, width = case["size"]
        assert f"{height}×{width} pixels" in sentence or "specify layout=" in sentence
    else:
        assert found.shape == case["size"]
        (h, w), (height, width) = found.scores.shape[1:3], found.shape
        assert h <= height
        assert w <= width
        assert abs(h * width - w * height) <= max(case["size"])


def rotated(path: Path, height: int, width: int) -> np.ndarray:
    """Write a JPEG with an EXIF rotation, and return the upright image."""
    upright = np.zeros((height, width, 3), np.uint8)
    upright[: height // 2] = 200
    stored = Image.fromarray(np.rot90(upright))
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    stored.save(path, exif=exif, quality=95)
    return upright


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    upright = rotated(tmp_path / "a.jpg", 40, 24)
    pixels = read_image(tmp_path / "a.jpg")
    assert pixels.shape == upright.shape
    assert abs(pixels.astype(int) - upright).mean() < 3


def test_command_refuses_scores_of_another_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upright = rotated(tmp_path / "a.jpg", 40, 24)
    out = tmp_path / "out"
    np.save(tmp_path / "wrong.npy", np.zeros((24, 40, 2), np.float32))
    Run(capsys, "refine", tmp_path / "a.jpg", tmp_path / "wrong.npy", "-o", out).check_refusal(
        "logits has shape (24, 40, 2) and the image has 40×24 pixels with 3 channels, expected (40, 24, K)"
    )
    assert not out.exists()
    np.save(tmp_path / "right.npy", 4 * np.eye(2)[(upright[..., 0] > 100).astype(int)].astype(np.float32))
    Run(capsys, "refine", tmp_path / "a.jpg", tmp_path / "right.npy", "-o", out, "--keep", "entropy")
    assert np.load(out / "a.entropy.npy").shape == (40, 24)
