"""Reading and writing of images, label maps and arrays, and errors for bad files."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from locpmap.errors import InputError
from locpmap.formats.arrays import read_array, write_array
from locpmap.formats.images import MAX_PIXELS, read_image, read_label_map
from locpmap.formats.pictures import label_colours, write_label_map, write_overlay, write_picture

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), np.uint8)
DEEP = RNG.integers(0, 2**16, (5, 7), np.uint16)


def png(path: Path, width: int, height: int, bits: int, colour: int, rows: bytes) -> Path:
    """Write a PNG file of any bit depth; ``colour`` 0 is grey."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def npy(path: Path, header: str, content: bytes = b"") -> Path:
    """Write a .npy file with a custom header."""
    text = header.encode() + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content)
    return path


# images


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(GREY), GREY),
        (Image.fromarray(DEEP), DEEP),
        (Image.fromarray(COLOUR), COLOUR),
        (Image.fromarray(GREY > 127), GREY > 127),
        (Image.fromarray(np.dstack([COLOUR, GREY])), COLOUR),  # alpha is dropped, not blended
        (Image.fromarray(np.dstack([GREY, GREY]), "LA"), GREY),
    ],
    ids=["grey", "16 bits", "colour", "1 bit", "RGBA", "grey and alpha"],
)
def test_pixels_are_read_unchanged(image: Image.Image, expected: np.ndarray, tmp_path: Path) -> None:
    image.save(tmp_path / "x.png")
    read = read_image(tmp_path / "x.png")
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)


def test_palette_is_read_as_colours_or_as_labels(tmp_path: Path) -> None:
    image = Image.fromarray(GREY % 3).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "x.png")
    np.testing.assert_array_equal(read_label_map(tmp_path / "x.png"), GREY % 3)
    palette = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90]])
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), palette[GREY % 3])


def test_jpeg_is_refused_as_a_label_map(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 77, np.uint8)).save(tmp_path / "x.jpg")
    np.testing.assert_array_equal(read_image(tmp_path / "x.jpg"), np.full((8, 8), 77))
    with pytest.raises(InputError, match="expected an image in PNG format"):
        read_label_map(tmp_path / "x.jpg")


@pytest.mark.parametrize(("bits", "row"), [(1, 0b01000000), (2, 0b00010010), (4, 0b00000001)])
def test_labels_of_few_bits_are_not_rescaled(bits: int, row: int, tmp_path: Path) -> None:
    labels = read_label_map(png(tmp_path / "x.png", 2, 1, bits, 0, bytes([0, row])))
    np.testing.assert_array_equal(labels, [[0, 1]])


@pytest.mark.parametrize("array", [GREY, DEEP], ids=["8 bits", "16 bits"])
def test_grey_values_are_read_as_labels(array: np.ndarray, tmp_path: Path) -> None:
    Image.fromarray(array).save(tmp_path / "x.png")
    np.testing.assert_array_equal(read_label_map(tmp_path / "x.png"), array)


# bad files


def decompression_bomb(path: Path) -> None:
    """Write an image with a gigapixel in a kilobyte."""
    png(path, 40_000, 40_000, 1, 0, bytes(1000))


def truncated(path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (64, 64), np.uint8)).save(content, "PNG")
    path.write_bytes(content.getvalue()[:2000])


def above_max_pixels(path: Path) -> None:
    side = int(MAX_PIXELS**0.5) + 1
    png(path, side, side, 1, 0, bytes(1000))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "does not exist, expected an image"),
        (lambda path: path.mkdir(), "is a directory, expected an image"),
        (lambda path: path.touch(), "is empty, expected an image"),
        (lambda path: path.write_bytes(b"GIF89a" + bytes(99)), "of another format, expected an image in PNG or JPEG"),
        (lambda path: Image.fromarray(GREY).save(path, "BMP"), "of another format"),
        (lambda path: path.write_text("no image"), "of another format"),
        (truncated, "is damaged: "),
        (decompression_bomb, "far too many pixels"),
        (above_max_pixels, f"expected at most {MAX_PIXELS}"),
        (lambda path: Image.fromarray(COLOUR).convert("CMYK").save(path, "JPEG"), "colour mode CMYK"),
        (lambda path: os.mkfifo(path), "not a regular file"),
    ],
)
def test_bad_images_are_refused(make: Callable[[Path], Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    make(path)
    with pytest.raises(InputError, match=r"x\.png") as caught:
        read_image(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_colour_image_is_refused_as_a_label_map(tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "x.png")
    with pytest.raises(InputError, match="colour mode RGB, expected labels as grey or palette values"):
        read_label_map(tmp_path / "x.png")


def test_truncated_and_corrupted_files_raise_only_input_errors(tmp_path: Path) -> None:
    """Truncate a file at every byte, and change every byte."""
    Image.fromarray(GREY).save(tmp_path / "whole.png")
    Image.fromarray(GREY).save(tmp_path / "whole.jpg")
    np.save(tmp_path / "whole.npy", COLOUR)
    for name, read in (("whole.png", read_image), ("whole.jpg", read_image), ("whole.npy", read_array)):
        content = (tmp_path / name).read_bytes()
        refused = 0
        places = range(0, len(content), 3 if name == "whole.jpg" else 1)
        for k in places:
            for broken in (content[:k], content[:k] + bytes([content[k] ^ 0x55]) + content[k + 1 :]):
                (tmp_path / "x").write_bytes(broken)
                try:
                    read(tmp_path / "x")
                except InputError:
                    refused += 1
        assert refused > len(places) // 2


# arrays


@pytest.mark.parametrize(
    "array",
    [
        COLOUR,
        np.asfortranarray(COLOUR),
        COLOUR[::-1],
        COLOUR.astype(">f8"),
        np.zeros((0, 3)),
        np.float32(1.5),
        GREY > 9,
    ],
    ids=["plain", "Fortran", "reversed", "big-endian", "empty", "scalar", "bool"],
)
def test_arrays_are_read_unchanged(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    read = read_array(tmp_path / "x.npy")
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(read, array)
    write_array(tmp_path / "y.npy", read)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.touch(), "is empty, expected a .npy file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(99)), "not a .npy file"),
        (lambda path: np.save(path, np.array([{"a": 1}])), "holds Python objects"),
        (lambda path: np.save(path, np.array(["text"])), "holds <U4, expected an array of real numbers"),
        (lambda path: np.save(path, np.array([1j])), "holds complex128"),
        (lambda path: npy(path, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", bytes(23)), "24 bytes"),
        (lambda path: npy(path, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", bytes(25)), "25 follow"),
        (lambda path: npy(path, "{'descr': '<f8', 'fortran_order': False, 'shape': (10**9, 10**9), }"), "not a .npy"),
        (lambda path: npy(path, f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**15},), }}"), "but 0 follow"),
        (lambda path: npy(path, "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }", bytes(8)), "(-1, -1)"),
        (lambda path: npy(path, "(" * 9000), "not a .npy file"),
        (lambda path: npy(path, "{'descr': 'O', 'fortran_order': False, 'shape': (1,), }", bytes(8)), "Python objects"),
    ],
)
def test_bad_arrays_are_refused(make: Callable[[Path], Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    make(path)
    with pytest.raises(InputError, match=r"x\.npy") as caught:
        read_array(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


# writing


@pytest.mark.parametrize(("n_labels", "mode"), [(2, "P"), (256, "P"), (300, "I;16")])
def test_label_maps_round_trip(n_labels: int, mode: str, tmp_path: Path) -> None:
    labels = RNG.integers(0, n_labels, (6, 5))
    labels[0, 0] = n_labels - 1
    write_label_map(tmp_path / "x.png", labels, n_labels)
    np.testing.assert_array_equal(read_label_map(tmp_path / "x.png"), labels)
    with Image.open(tmp_path / "x.png") as image:
        assert image.mode == mode


def test_label_colours_are_distinct() -> None:
    assert len(np.unique(label_colours(256), axis=0)) == 256


def test_first_label_colours_are_easy_to_tell_apart() -> None:
    lab = pytest.importorskip("skimage.color").rgb2lab(label_colours(32) / 255)
    assert np.linalg.norm(lab[:, None] - lab, axis=2)[np.triu_indices(32, 1)].min() > 21


@pytest.mark.parametrize("brightness", [0, 128, 255])
def test_labels_of_an_overlay_differ_from_each_other_and_from_the_image(brightness: int, tmp_path: Path) -> None:
    """Twelve labels, each in one column, are coloured, and differ by at least 15 grey levels in a channel."""
    labels = np.repeat(np.arange(12)[None], 6, axis=0).repeat(3, axis=1)
    image = np.full(labels.shape, brightness, np.uint8)
    write_overlay(tmp_path / "x.png", image, labels, np.zeros(labels.shape), 12)
    shown = read_image(tmp_path / "x.png")[0, 1::3].astype(int)
    difference = np.abs(shown[:, None] - shown[None]).max(axis=-1)
    assert difference[~np.eye(12, dtype=bool)].min() >= 15
    assert np.ptp(shown, axis=1).min() >= 20  # no label is grey, as the image is


@pytest.mark.parametrize("shape", [(6, 5), (1, 9), (9, 1), (1, 1), (30, 200)])
def test_pictures_of_any_shape_are_written(shape: tuple[int, int], tmp_path: Path) -> None:
    labels = RNG.integers(0, 3, shape)
    probability = np.full((*shape, 3), 1 / 3)
    write_picture(tmp_path / "all.png", labels, probability, 3)
    write_picture(tmp_path / "labels.png", labels, None, 3)
    with Image.open(tmp_path / "all.png") as every, Image.open(tmp_path / "labels.png") as single:
        step = single.width + 8
        assert every.size == (2 * step + single.width, single.height)
        assert every.getpixel((0, 18)) == single.getpixel((0, 18)) == tuple(label_colours(3)[labels[0, 0]].tolist())
        assert every.getpixel((step, 18)) == (85, 85, 85)  # 1/3 of white
        assert every.getpixel((2 * step, 18)) == (227, 227, 227)  # 4 · 1/3 · 2/3 of white


def test_pixels_without_a_label_are_black(tmp_path: Path) -> None:
    labels = np.array([[0, 1], [-1, 2]])
    write_label_map(tmp_path / "x.png", labels, 256)
    np.testing.assert_array_equal(read_label_map(tmp_path / "x.png"), labels % 256)
    found = read_image(tmp_path / "x.png")
    np.testing.assert_array_equal(found[1, 0], 0)
    np.testing.assert_array_equal(found[0], label_colours(2))
