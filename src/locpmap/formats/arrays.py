"""Read and write arrays of numbers in NumPy's ``.npy`` files."""

from __future__ import annotations

import io
import math
import tokenize
from pathlib import Path
from typing import IO, Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.readable import size_of

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: PathLike) -> Array:
    """Read the array of real numbers in a file.

    Everything else is refused by name: other files, arrays of Python objects, and headers that claim another size
    than the file has, before memory is taken for them.
    """
    shape, transposed, dtype, offset = describe(path)
    try:
        flat = np.fromfile(path, dtype, math.prod(shape), offset=offset)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return flat.reshape(shape[::-1]).T if transposed else flat.reshape(shape)


def describe(path: PathLike) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether it is in Fortran's order, type and offset of a file whose size is as its header claims."""
    size = size_of(path, "a .npy file")
    try:
        with Path(path).open("rb") as file:
            shape, transposed, dtype = read_header(path, file)
            offset = file.tell()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - offset:
        raise InputError(
            f"{path} is damaged: its header claims shape {shape} of {dtype}, {claimed} bytes,"
            f" but {size - offset} follow"
        )
    return shape, transposed, dtype, offset


def read_header(path: PathLike, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether it is in Fortran's order, and the type, which is one of plain numbers."""
    try:
        version = np.lib.format.read_magic(file)
        shape, transposed, dtype = HEADERS[version](file)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
        raise InputError(f"{path} is damaged or no .npy file, expected an array of numbers") from None
    if dtype.kind not in "fiub":
        what = "Python objects" if dtype.hasobject else f"{dtype}"
        raise InputError(f"{path} holds {what}, expected an array of real numbers")
    if min(shape, default=0) < 0:
        raise InputError(f"{path} is damaged: its header claims the shape {shape}")
    return shape, transposed, dtype


def write_array(path: PathLike, array: Array) -> None:
    """Write a ``.npy`` file, completely or not at all."""
    plain = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(plain))
    write_bytes(path, [header.getvalue(), plain.tobytes()])
