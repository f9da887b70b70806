"""Numeric arrays in NumPy's ``.npy`` files."""

import io
import math
import tokenize
from pathlib import Path
from typing import IO, Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.readable import reading, size_of

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_array(path: PathLike) -> Array:
    """Read real numbers from a ``.npy`` file.  Its size is checked before memory is allocated; objects are rejected."""
    shape, transposed, dtype, offset = describe(path)
    with reading(path):
        flat = np.fromfile(path, dtype, math.prod(shape), offset=offset)
    return flat.reshape(shape, order="F" if transposed else "C")


def describe(path: PathLike) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and data offset; raise if the file's size disagrees with its header."""
    size = size_of(path, "a .npy file")
    with reading(path), Path(path).open("rb") as file:
        shape, transposed, dtype = read_header(path, file)
        offset = file.tell()
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - offset:
        raise InputError(
            f"{path} is damaged: its header claims shape {shape} of {dtype}, {claimed} bytes,"
            f" but {size - offset} follow"
        )
    return shape, transposed, dtype, offset


def read_header(path: PathLike, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and dtype; raise unless the array holds real numbers."""
    try:
        version = np.lib.format.read_magic(file)
        shape, transposed, dtype = HEADERS[version](file)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
        raise InputError(f"{path} is damaged or not a .npy file, expected an array of numbers") from None
    if dtype.kind not in "fiub":
        what = "Python objects" if dtype.hasobject else f"{dtype}"
        raise InputError(f"{path} holds {what}, expected an array of real numbers")
    if min(shape, default=0) < 0:
        raise InputError(f"{path} is damaged: its header claims the shape {shape}")
    return shape, transposed, dtype


def write_array(path: PathLike, array: Array) -> None:
    """Write an array of numbers to a ``.npy`` file in C order, completely or not at all."""
    plain = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(plain))
    write_bytes(path, [header.getvalue(), plain.tobytes()])
