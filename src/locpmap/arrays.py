"""Arrays in, arrays of the same kind out.

Inside, everything is NumPy.  A torch tensor is recognised only if the caller has imported torch already, so
that this library never imports it by itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError

MAX_COPY = 2**24  # bytes up to which an input is copied rather than shared


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
        single = array.ndim == 0 and array.dtype == object
        came = "is None" if value is None else f"is a {type(value).__name__}" if single else f"has dtype {array.dtype}"
        raise InputTypeError(f"{name} {came}, expected real numbers")
    return array


def to_float(value: object, name: str) -> npt.NDArray[Any]:
    """As :func:`to_numpy`, to keep, in single or double precision: half becomes single, integers become double."""
    array = to_numpy(value, name)
    if array.dtype in (np.float32, np.float64):
        return to_keep(array)
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def to_labels(value: object, name: str) -> npt.NDArray[np.int64]:
    """The value as integer labels."""
    array = to_numpy(value, name)
    if array.dtype.kind == "f":
        raise InputTypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise InputError(f"{name} contains {array.max()}, expected numbers below 2^63")
    return array.astype(np.int64, copy=False)


def to_keep(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of a small array, so that the caller may change the original; a large one (over 16 MB) as it is."""
    return array.copy() if array.nbytes <= MAX_COPY else array


@dataclass(frozen=True)
class Restore:
    """Turns NumPy results into the kind of array the caller works with: NumPy, or tensors on the named device."""

    device: str | None = None

    @classmethod
    def like(cls, value: object) -> Restore:
        """Results as the value is."""
        return cls(str(value.device)) if is_tensor(value) else cls()  # type: ignore[attr-defined]

    def __call__(self, array: npt.NDArray[Any]) -> Any:
        if self.device is None:
            return array
        # By name: the caller has imported it, if not in this process then in the one that the potentials came from.
        return import_module("torch").from_numpy(np.ascontiguousarray(array)).to(self.device)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous read-only view (a copy only if the memory is not contiguous)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
