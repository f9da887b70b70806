"""Model files: arrays in safetensors format with a JSON header.

The JSON text is stored in the file's metadata under the key "locpmap".  It holds ``schema`` (the version of this
layout), ``model`` (the caller's header) and ``sha256`` (a checksum of the header and all arrays).  A file whose
content does not match its checksum is not loaded.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.formats.atomic import PathLike, write_bytes
from locpmap.formats.readable import reading, size_of

Arrays = dict[str, npt.NDArray[Any]]

SCHEMA = 1
KEY = "locpmap"
MAX_BYTES = 2**30  # size of a file; usual models take kilobytes
DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def write_model(path: PathLike, arrays: Mapping[str, npt.NDArray[Any]], header: dict[str, Any]) -> None:
    """Write a model file atomically; raise if an array or the header cannot be stored.

    ``arrays`` are finite, in half, single or double precision, and take at most 512 MiB.  ``header`` is what JSON can
    represent.

    >>> import pathlib, tempfile
    >>> from locpmap.formats import read_model, write_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.safetensors"
    ...     write_model(path, {"weights": np.eye(2)}, {"n_labels": 2})
    ...     read_model(path)
    ({'weights': array([[1., 0.],
           [0., 1.]])}, {'n_labels': 2})
    """
    from safetensors.numpy import save

    size = sum(array.nbytes for array in arrays.values())
    if size > MAX_BYTES // 2:  # the header must fit, too, so that the file can be read
        raise InputError(f"the arrays of the model take {size} bytes, expected at most {MAX_BYTES // 2}")
    checked = {name: _checked(array, f"the array {name!r}") for name, array in arrays.items()}
    try:
        # Encode and decode, so that the checksum covers the header as it is read back.
        model = json.loads(json.dumps(header, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the header cannot be written as JSON: {error}") from None
    text = json.dumps({"schema": SCHEMA, "sha256": _checksum(checked, model), "model": model})
    write_bytes(path, [save(checked, metadata={KEY: text})])


def read_model(path: PathLike) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the header of a model file.  Check all sizes before memory is allocated."""
    from safetensors import SafetensorError, safe_open

    if (size := size_of(path, "a model file")) > MAX_BYTES:
        raise InputError(f"{path} has {size} bytes, expected a model file of at most {MAX_BYTES}")
    try:
        with reading(path), safe_open(os.fspath(path), framework="numpy") as file:
            checksum, model = _parse_text(path, file.metadata())
            arrays = {name: _read_array(path, file, name) for name in sorted(file.keys())}
    except SafetensorError as error:
        reason = str(error).rpartition("deserializing header: ")[2].splitlines()[0][:100]
        raise InputError(f"{path} is damaged or not a safetensors file ({reason}), expected a saved model") from None
    if checksum != _checksum(arrays, model):
        raise InputError(f"{path} is damaged: its content does not have the checksum that it was saved with")
    return arrays, model


def _parse_text(path: PathLike, metadata: Mapping[str, str] | None) -> tuple[str, dict[str, Any]]:
    """Return the checksum and the caller's header."""
    if not metadata or KEY not in metadata:
        raise InputError(f"{path} is a safetensors file without a {KEY!r} header, expected a model saved by locpmap")
    try:
        header = json.loads(metadata[KEY], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} has a {KEY!r} header that is not JSON ({error}), expected a saved model") from None
    schema = header.get("schema") if isinstance(header, dict) else None
    if type(schema) is not int or schema < 1:
        raise InputError(f"{path} has a header without a schema version, expected a whole number from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise InputError(
            f"{path} was saved by a newer version (schema {schema}, this version reads up to {SCHEMA}):"
            " upgrade locpmap to read it"
        )
    if not isinstance(header.get("model"), dict) or not isinstance(header.get("sha256"), str):
        raise InputError(f"{path} has an incomplete header, expected 'model' and 'sha256' in it")
    return header["sha256"], header["model"]


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _read_array(path: PathLike, file: Any, name: str) -> npt.NDArray[Any]:
    what = f"{path}: the array {name!r}"
    dtype = file.get_slice(name).get_dtype()
    if dtype not in DTYPES:
        raise InputError(f"{what} has type {dtype}, expected one of {', '.join(DTYPES)}")
    try:
        array = file.get_tensor(name)
    except ValueError as error:  # more or longer axes than NumPy allows
        raise InputError(f"{what} cannot be loaded: {error}") from None
    return _checked(array, what)


def _checked(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Return the array in C order; raise unless it is a finite float array."""
    if array.dtype not in DTYPES.values():
        raise InputError(f"{what} has dtype {array.dtype}, expected float16, float32 or float64")
    if not np.isfinite(array).all():
        value = array[~np.isfinite(array)][0]
        raise InputError(f"{what} contains {value}, expected finite numbers")
    return np.asarray(array, order="C")


def _checksum(arrays: Mapping[str, npt.NDArray[Any]], model: dict[str, Any]) -> str:
    """Return the sha256 of the header (keys sorted) and of the arrays' names, dtypes, shapes and bytes."""
    total = hashlib.sha256(json.dumps(model, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        total.update(array.tobytes())
    return total.hexdigest()
