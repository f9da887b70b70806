"""MNIST from its published format: gzipped big-endian idx files with magic number 2051 for images."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.label_maps import LabelMaps
from locpmap_paper.data.registry import known_dataset
from locpmap_paper.data.verify import read

N_USED = 5000  # images per file, as in the paper
INK = 127  # brighter pixels are foreground
MAGIC = {1: 2049, 3: 2051}  # by number of axes: labels, images
MAX_VALUES = 2**27


def mnist(folder: PathLike | None = None) -> LabelMaps:
    """Load MNIST as binary label maps (pixels over 127): the first 5,000 training and 5,000 test images.

    Loading takes 50 MB and under a second.  Nothing is downloaded; see :func:`locpmap_paper.data.fetch`.

    Args:
        folder (str or Path, optional): Cache folder; by default :func:`locpmap_paper.data.folder`.

    Returns:
        LabelMaps: The label maps of both parts.

    Raises:
        InputError: If a file is missing or altered.
    """
    dataset = known_dataset("mnist")
    maps, files = [], []
    for name in ("train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"):
        content, record = read(dataset, name, folder)
        images = parse_idx(content, name, n_axes=3)
        maps.append((images[:N_USED] > INK).astype(np.uint8))
        files.append(record)
    return LabelMaps(dataset.name, maps[0], maps[1], tuple(files))


def parse_idx(content: bytes, name: str, n_axes: int) -> npt.NDArray[Any]:
    """Parse a gzipped idx file of unsigned bytes; `name` is used in error messages."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            header = stream.read(4 + 4 * n_axes)
            if len(header) < 4 + 4 * n_axes:
                raise InputError(f"{name} ends within its header, expected {4 + 4 * n_axes} bytes of it")
            magic, *shape = struct.unpack(f">{1 + n_axes}I", header)
            if magic != MAGIC[n_axes]:
                raise InputError(f"{name} begins with the magic number {magic}, expected {MAGIC[n_axes]}")
            n_values = math.prod(shape)
            if n_values > MAX_VALUES:
                raise InputError(f"{name} claims the shape {tuple(shape)}, expected at most {MAX_VALUES} values")
            data = stream.read(n_values + 1)  # one extra byte, so that gzip verifies the checksum
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} is damaged or not gzipped, expected a complete .gz file: {error}") from None
    if len(data) != n_values:
        came = "more" if len(data) > n_values else len(data)
        raise InputError(f"{name} holds {came} values, expected the {n_values} of the shape {tuple(shape)}")
    return np.frombuffer(data, np.uint8).reshape(shape)
