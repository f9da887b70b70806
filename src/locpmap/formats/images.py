"""Read images and label maps from PNG and JPEG files.

The format is detected from the content of a file, not from its name.  Only the first frame of an animation is read.
The EXIF orientation of a photograph is applied.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike
from locpmap.formats.readable import reason, size_of

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_PIXELS = 2**27  # 400 MB in colour; the header of a small file can claim far more
GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L")  # 1, 8 and 16 bits; Pillow versions differ in the mode of 16 bits
KINDS = {"LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # mode of the file: mode to convert to


def read_image(path: PathLike) -> Array:
    """Read a grey image as (H, W), bool, uint8 or uint16, or a colour image as (H, W, 3) uint8.

    An alpha channel is dropped, a palette is converted to RGB, and 16-bit colours are reduced to 8 bits.
    """
    with _opened(path, ("PNG", "JPEG")) as image:
        if image.mode in GREY:
            return _grey(path, image)
        if image.mode in KINDS:
            return np.asarray(image.convert(KINDS[image.mode]))
        raise InputError(f"{path} has colour mode {image.mode}, expected a grey, RGB or palette image")


def read_label_map(path: PathLike) -> Array:
    """Read labels (H, W) from a PNG file: grey values of 1 to 16 bits, or palette indices."""
    with _opened(path, ("PNG",)) as image:
        if image.mode == "P":
            return np.asarray(image)
        if image.mode not in GREY:
            raise InputError(f"{path} has colour mode {image.mode}, expected labels as grey or palette values")
        values = _grey(path, image).astype(np.uint16)
        return values // _stretch(path, image)


def _stretch(path: PathLike, image: Image) -> int:
    """Return the factor by which Pillow scales grey values of 2 or 4 bits to 8 bits."""
    if image.mode != "L":
        return 1
    with Path(path).open("rb") as file:
        bits = file.read(25)[24]  # bit depth, after signature, chunk length, chunk name, width, height
    return int(255 // (2**bits - 1))


def _grey(path: PathLike, image: Image) -> Array:
    values = np.asarray(image)
    if values.dtype.kind == "b" or values.dtype.itemsize == 1:
        return values
    if values.min() < 0 or values.max() >= 2**16:
        raise InputError(f"{path} has grey values of more than 16 bits, expected at most 16")
    return values.astype(np.uint16)


@contextmanager
def _opened(path: PathLike, formats: tuple[str, ...]) -> Iterator[Image]:
    """Open an image, check its claimed size, load its pixels and apply the EXIF orientation."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    expected = f"an image in {' or '.join(formats)} format"
    size_of(path, expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS is checked below
            image = Image.open(path, formats=formats)
    except Image.DecompressionBombError:
        raise InputError(f"{path} has far too many pixels, expected at most {MAX_PIXELS}") from None
    except UnidentifiedImageError:
        raise InputError(f"{path} is damaged or of another format, expected {expected}") from None
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise InputError(f"{path} cannot be read as an image: {reason(error)}") from None
    with image:
        if image.width * image.height > MAX_PIXELS:
            raise InputError(f"{path} has {image.width}×{image.height} pixels, expected at most {MAX_PIXELS}")
        try:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
        except (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error) as error:
            raise InputError(f"{path} is damaged: {reason(error)}") from None
        yield image
