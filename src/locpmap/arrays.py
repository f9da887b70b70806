"""Arrays in, arrays of the same kind out.

Inside, everything is NumPy.  A torch tensor is recognised only if the caller has imported torch already, so
that this library never imports it by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError

Restore = Callable[[npt.NDArray[Any]], Any]


def is_tensor(value: object) -> bool:
    """Whether the value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(value: object, name: str) -> npt.NDArray[Any]:
    """The value as a NumPy array, without a copy where that is possible."""
    if is_tensor(value):
        tensor = value.detach().cpu()  # type: ignore[attr-defined]
        value = tensor.float() if tensor.dtype == sys.modules["torch"].bfloat16 else tensor  # NumPy has no bfloat16
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} is ragged: expected an array with one shape") from None
    if array.dtype.kind not in "fiub":
        raise InputTypeError(f"{name} has dtype {array.dtype}, expected real numbers")
    return array


def to_float(value: object, name: str) -> npt.NDArray[Any]:
    """As :func:`to_numpy`, in single or double precision: half becomes single, integers become double."""
    array = to_numpy(value, name)
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def to_labels(value: object, name: str) -> npt.NDArray[np.int64]:
    """The value as integer labels."""
    array = to_numpy(value, name)
    if array.dtype.kind == "f":
        raise InputTypeError(f"{name} has dtype {array.dtype}, expected integers")
    return array.astype(np.int64, copy=False)


def restorer(value: object) -> Restore:
    """A function that turns NumPy results into the kind of array the caller works with."""
    if not is_tensor(value):
        return lambda array: array
    torch, device = sys.modules["torch"], value.device  # type: ignore[attr-defined]
    return lambda array: torch.from_numpy(np.ascontiguousarray(array)).to(device)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous read-only view (a copy only if the memory is not contiguous)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
