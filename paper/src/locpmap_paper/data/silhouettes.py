"""The Caltech 101 Silhouettes from their MATLAB file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap_paper.data.cache import PathLike
from locpmap_paper.data.label_maps import LabelMaps, Maps, permuted_split
from locpmap_paper.data.registry import known_dataset
from locpmap_paper.data.verify import read

N_TRAIN = 5000
SIDE = 28
MAX_ROWS = 2**15
KINDS = ("logical", "uint8", "double")  # accepted MATLAB types


def silhouettes(folder: PathLike | None = None) -> LabelMaps:
    """Load Caltech 101 Silhouettes as 28 × 28 label maps (1 = object), 5,000 for training and 3,671 for testing.

    The file has no such split, so it is split by a permutation with seed 0.  Nothing is downloaded; see
    :func:`locpmap_paper.data.fetch`.

    Args:
        folder (str or Path, optional): Cache folder; by default :func:`locpmap_paper.data.folder`.

    Returns:
        LabelMaps: The label maps of both parts.

    Raises:
        InputError: If the file is missing or altered.
    """
    dataset = known_dataset("silhouettes")
    name = "caltech101_silhouettes_28.mat"
    content, record = read(dataset, name, folder)
    train, test = permuted_split(parse_silhouettes(content, name), N_TRAIN)
    return LabelMaps(dataset.name, train, test, (record,))


def parse_silhouettes(content: bytes, name: str) -> Maps:
    """Return maps (N, 28, 28) with 1 at object pixels, from ``X`` (N, 784), which is 0 at them and in column order."""
    rows = _matrix(content, name)
    if not np.isin(rows, (0, 1)).all():
        raise InputError(f"{name} holds other values than 0 and 1 in X, expected a binary matrix")
    return np.ascontiguousarray(1 - rows.astype(np.uint8).reshape(-1, SIDE, SIDE).transpose(0, 2, 1))


def _matrix(content: bytes, name: str) -> npt.NDArray[Any]:
    from scipy.io import loadmat, whosmat

    expected = f"expected a MATLAB file (version 5) with a matrix X of numbers in {SIDE * SIDE} columns"
    try:
        found = [(shape, kind) for variable, shape, kind in whosmat(io.BytesIO(content)) if variable == "X"]
        if len(found) != 1:
            raise InputError(f"{name} has {len(found)} variables X, {expected}")
        shape, kind = found[0]  # checked before the matrix is loaded
        if len(shape) != 2 or shape[1] != SIDE * SIDE or not 0 < shape[0] <= MAX_ROWS or kind not in KINDS:
            raise InputError(f"{name} has an X of {kind} in the shape {shape}, {expected}")
        rows = loadmat(io.BytesIO(content), variable_names=["X"])["X"]
    except InputError:
        raise
    except NotImplementedError:
        raise InputError(f"{name} is a MATLAB file of version 7.3 (HDF5), {expected}") from None
    except Exception as error:  # SciPy raises many types of errors for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{name} cannot be read ({reason}), {expected}") from None
    if rows.dtype.kind not in "uifb":
        raise InputError(f"{name} has an X of {rows.dtype} numbers, {expected}")
    return rows
