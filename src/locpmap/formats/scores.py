"""Scores of a network: ``.npy``, ``.npz`` and ``.safetensors`` files with one array each."""

import io
import lzma
import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError
from locpmap.formats.arrays import read_array, read_header
from locpmap.formats.atomic import PathLike
from locpmap.formats.readable import reading, reason, size_of

ENDINGS = (".npy", ".npz", ".safetensors")
OBJECTS = (".pt", ".pth", ".pkl", ".ckpt", ".bin")  # files of Python objects, which are never loaded
DTYPES = ("F16", "F32", "F64")
BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)
MOST_TIMES = 1100  # above the largest compression ratio of DEFLATE


def read_scores(path: PathLike) -> Array:
    """Read the only array of a file; the ending of its name selects the format."""
    ending = Path(path).suffix.lower()
    if ending in OBJECTS:
        raise InputError(
            f"{path} may hold Python objects, which are never loaded, expected an array:"
            " convert it with numpy.save('scores.npy', tensor.numpy())"
        )
    if ending == ".npz":
        return _read_archive(path)
    if ending == ".safetensors":
        return _read_safetensors(path)
    if ending != ".npy":
        raise InputError(f"{path} ends in {ending or 'nothing'}, expected scores in {', '.join(ENDINGS)}")
    return read_array(path)


def _read_archive(path: PathLike) -> Array:
    """Read a ``.npz`` file; check the claimed sizes before memory is allocated."""
    size = size_of(path, "a .npz file")
    try:
        with reading(path), zipfile.ZipFile(os.fspath(path)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                names = ", ".join(member.filename.removesuffix(".npy") for member in members[:5])
                raise InputError(f"{path} holds {len(members)} arrays ({names}), expected one")
            if members[0].file_size > MOST_TIMES * size:
                raise InputError(f"{path} is damaged: it claims {members[0].file_size} bytes and has {size}")
            content = archive.read(members[0])
    except InputError:
        raise
    except BAD_ARCHIVE:
        raise InputError(f"{path} is damaged or not a .npz file, expected an array of numbers") from None
    file = io.BytesIO(content)
    shape, transposed, dtype = read_header(path, file)
    if math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise InputError(f"{path} is damaged: its header claims shape {shape} of {dtype}, the data have another size")
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if transposed else "C")


def _read_safetensors(path: PathLike) -> Array:
    from safetensors import SafetensorError, safe_open

    size_of(path, "a safetensors file")
    try:
        with reading(path), safe_open(os.fspath(path), framework="numpy") as file:
            names = sorted(file.keys())
            if len(names) != 1:
                raise InputError(f"{path} holds {len(names)} tensors ({', '.join(names[:5])}), expected one")
            dtype = file.get_slice(names[0]).get_dtype()
            if dtype not in DTYPES:
                raise InputError(f"{path} holds numbers of type {dtype}, expected one of {', '.join(DTYPES)}")
            return np.asarray(file.get_tensor(names[0]))
    except InputError:
        raise
    except (SafetensorError, ValueError) as error:
        raise InputError(
            f"{path} is damaged or not a safetensors file ({reason(error)}), expected one tensor"
        ) from None
