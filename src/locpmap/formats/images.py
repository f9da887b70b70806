"""Read images and label maps in PNG and JPEG files.

The format is known by a file's content, not by its name.  Of an animated file the first frame is read.  A rotation in a
photograph's metadata (EXIF) is applied, so that images are upright, as viewers show them.
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


MAX_PIXELS = 2**27  # 400 MB in colour; a small file can claim far more
GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L")  # one bit, 8 bits, and what 16 bits are in versions of Pillow
KINDS = {"LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # mode: what it is read as


def read_image(path: PathLike) -> Array:
    """Read the pixels: (H, W) of a grey image, bool, uint8 or uint16; (H, W, 3) uint8 of a colour image.

    An alpha channel is dropped, a palette is replaced by its colours, and colours of 16 bits are read with 8.
    """
    with _opened(path, ("PNG", "JPEG")) as image:
        if image.mode in GREY:
            return _grey(path, image)
        if image.mode in KINDS:
            return np.asarray(image.convert(KINDS[image.mode]))
        raise InputError(f"{path} has colours of the kind {image.mode}, expected a grey, RGB or palette image")


def read_label_map(path: PathLike) -> Array:
    """Read labels (H, W) from a PNG file: grey values of 1 to 16 bits, or the numbers of palette entries."""
    with _opened(path, ("PNG",)) as image:
        if image.mode == "P":
            return np.asarray(image)
        if image.mode not in GREY:
            raise InputError(f"{path} has colours of the kind {image.mode}, expected labels as grey or palette values")
        values = _grey(path, image).astype(np.uint16)
        return values // _stretch(path, image)


def _stretch(path: PathLike, image: Image) -> int:
    """Return the factor by which Pillow multiplies grey values of 2 or 4 bits, to fill the range of 8."""
    if image.mode != "L":
        return 1
    with Path(path).open("rb") as file:
        bits = file.read(25)[24]  # after the signature, and the length, name, width and height of the first chunk
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
    """Open an image upright, with its pixels in memory; the size that the file claims is checked before."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    expected = f"an image in {' or '.join(formats)} format"
    size_of(path, expected)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit follows
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
