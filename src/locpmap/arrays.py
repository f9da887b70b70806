"""Arrays in, arrays of the same kind out.

Inside, everything on the CPU is NumPy, and what lies on a GPU or another accelerator stays there as torch tensors.  A
tensor is recognised only if the caller has imported torch already, so that this library never imports it by itself.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError

Array: TypeAlias = npt.NDArray[Any]

MAX_COPY = 2**24  # bytes up to which an input is copied rather than shared
SINGLE_ONLY = ("mps",)  # kinds of devices without double precision


def is_tensor(value: object) -> bool:
    """Whether the value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def on_gpu(value: object) -> bool:
    """Whether the value is a tensor on a GPU, or on another accelerator: it is kept where it is."""
    return is_tensor(value) and value.device.type not in ("cpu", "meta")  # type: ignore[attr-defined]


def current_device(array: Any) -> AbstractContextManager[Any]:
    """Inside, what is launched runs where the array is: with several GPUs it need not be torch's current one."""
    if not is_tensor(array) or array.device.type != "cuda":
        return nullcontext()
    cuda = sys.modules["torch"].cuda
    return nullcontext() if array.device.index == cuda.current_device() else cuda.device(array.device)  # slow to enter


def wait_for_device(array: Any) -> None:
    """Return when all that was launched where the array is has ended."""
    if is_tensor(array) and array.device.type not in ("cpu", "meta"):
        sys.modules["torch"].accelerator.synchronize(array.device)


class Stopwatch:
    """Count seconds from ``began``, by the host's clock, to the stop on the array's device.

    CUDA is not waited for before they are asked for.
    """

    def __init__(self, array: Any, began: float) -> None:
        self._array, self._began = array, began
        self._events: list[Any] = []
        if is_tensor(array) and array.device.type == "cuda":
            # By number, for to find that of a device takes longer than the rest.
            self._stream = sys.modules["torch"].cuda.current_stream(array.device.index)
            self._mark()
        self._host = time.perf_counter() - began

    def _mark(self) -> None:
        event = sys.modules["torch"].cuda.Event(enable_timing=True)
        self._events.append(self._stream.record_event(event))

    def stop(self) -> None:
        """Now, or when the device has come as far as this."""
        if self._events:
            self._mark()
        else:
            wait_for_device(self._array)  # another accelerator
            self._host = time.perf_counter() - self._began

    @property
    def seconds(self) -> float:
        """The time between; waits for a device to come so far."""
        if not self._events:
            return self._host
        begin, end = self._events
        end.synchronize()
        return self._host + float(begin.elapsed_time(end)) / 1000


def namespace(array: object) -> Any:
    """The module whose functions take the array: NumPy or torch, as far as the two agree."""
    return sys.modules["torch"] if is_tensor(array) else np


def to_numpy(value: object, name: str) -> npt.NDArray[Any]:
    """The value as a NumPy array, without a copy where that is possible."""
    if is_tensor(value):
        tensor = _dense(value, name).detach().cpu()
        value = tensor.float() if tensor.dtype == sys.modules["torch"].bfloat16 else tensor  # NumPy has no bfloat16
    refuse_masked(value, name, "call its filled()")
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} is ragged: expected an array with one shape") from None
    if array.dtype.kind not in "fiub":
        kind = f"is a {type(value).__name__}" if array.ndim == 0 else f"has dtype {array.dtype}"
        came = "is None" if value is None else kind
        raise InputTypeError(f"{name} {came}, expected real numbers")
    return array


def refuse_masked(value: object, name: str, instead: str = "pass a mask as mask=") -> None:
    """Refuse a masked array with masked entries; ``instead`` says what the caller's function offers for them."""
    if _has_masked(value):
        raise InputError(f"{name} is a masked array with masked entries, expected a plain array: {instead}")


def _has_masked(value: object) -> bool:
    """Return whether a masked array, or one in a list, has a masked entry."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        return any(map(_has_masked, value))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def _dense(tensor: Any, name: str) -> Any:
    """The tensor, refused where it does not hold plain numbers one beside the other."""
    plain = tensor.layout == sys.modules["torch"].strided
    for wrong, problem in (
        (tensor.is_nested, "nested, expected one shape"),
        (tensor.is_meta, "on the device meta, expected one that holds numbers"),
        (tensor.is_quantized, "quantized, expected plain numbers: call its dequantize()"),
        (not plain, f"of layout {tensor.layout}, expected a dense one: call its to_dense()"),
    ):
        if wrong:
            raise InputTypeError(f"{name} is a tensor {problem}")
    return tensor


def to_float(value: object, name: str, like: object = None) -> Any:
    """An array to keep, in single or double precision: half becomes single, integers become double.

    A tensor on a GPU stays one; beside ``like`` anything else becomes one on the same GPU.
    """
    if on_gpu(like) or (like is None and on_gpu(value)):
        return _to_float_tensor(value, name, value if like is None else like)
    array = to_numpy(value, name)
    if array.dtype in (np.float32, np.float64):
        return copy_if_small(array)
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def _to_float_tensor(value: object, name: str, like: Any) -> Any:
    torch = sys.modules["torch"]
    if is_tensor(value):
        tensor = _dense(value, name).detach()
    else:
        tensor = torch.from_numpy(np.require(to_float(value, name), requirements=["C", "W"]))
    if tensor.dtype.is_complex:
        raise InputTypeError(f"{name} has dtype {tensor.dtype}, expected real numbers")
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if half else tensor.dtype if tensor.dtype.is_floating_point else torch.float64
    copy = is_tensor(value) and tensor.nbytes <= MAX_COPY
    return tensor.to(device=like.device, dtype=dtype_beside(like, dtype), copy=copy).contiguous()


def dtype_beside(like: Any, dtype: Any) -> Any:
    """The type of that name (or itself) for arrays beside ``like``: where a device has no double precision, single."""
    return _torch_dtype(dtype, like.device.type in SINGLE_ONLY) if is_tensor(like) else np.dtype(dtype)


@cache
def _torch_dtype(dtype: Any, single_only: bool) -> Any:
    torch = import_module("torch")
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return torch.float32 if single_only and dtype == torch.float64 else dtype


def to_labels(value: object, name: str) -> npt.NDArray[np.int64]:
    """The value as integer labels."""
    array = to_numpy(value, name)
    if array.dtype.kind == "f":
        raise InputTypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise InputError(f"{name} contains {array.max()}, expected numbers below 2^63")
    return array.astype(np.int64, copy=False)


def copy_if_small(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of a small array, so that the caller may change the original; a large one (over 16 MB) as it is."""
    return array.copy() if array.nbytes <= MAX_COPY else array


def cast(array: Any, dtype: Any) -> Any:
    """The array in another type, which may be its own; ``dtype`` is one of the same kind of array, or its name."""
    if is_tensor(array):
        there = dtype_beside(array, dtype)
        return array if array.dtype == there else array.to(there)
    return array.astype(dtype, copy=False)


def place_beside(like: Any, array: npt.NDArray[Any]) -> Any:
    """The array as it is, or, where ``like`` is a tensor, as a tensor on the same device."""
    return _placed(import_module("torch").from_numpy(np.array(array)), like.device) if is_tensor(like) else array


@dataclass(frozen=True)
class Restore:
    """Turns results into the kind of array the caller works with: NumPy, or tensors on the named device."""

    device: str | None = None

    @classmethod
    def like(cls, value: object) -> Restore:
        """Results as the value is."""
        return cls(str(value.device)) if is_tensor(value) else cls()  # type: ignore[attr-defined]

    def __call__(self, array: Any) -> Any:
        if is_tensor(array):
            return array.cpu().numpy() if self.device is None else _placed(array, self.device)
        if self.device is None:
            return array
        # By name: the caller has imported it, if not in this process then in the one that the potentials came from.
        return _placed(import_module("torch").from_numpy(np.require(array, requirements=["C", "W"])), self.device)


def _placed(tensor: Any, device: Any) -> Any:
    single_only = str(device).partition(":")[0] in SINGLE_ONLY
    dtype = _torch_dtype(tensor.dtype, single_only)
    return tensor if tensor.dtype == dtype and str(tensor.device) == device else tensor.to(device=device, dtype=dtype)


def of_images(array: Any, lo: int, hi: int) -> Any:
    """The part of images lo..hi, as it is where that is all: a slice of a tensor takes time."""
    return array if (lo, hi) == (0, array.shape[0]) else array[lo:hi]


def label_sums(array: Any) -> Any:
    """Return the sums over the last of three axes, (N, S, 1), of which none depends on a site's place.

    On the CPU one label is added after the other, which is several times as fast for few labels.
    """
    if is_tensor(array):
        return array.sum(axis=2)[:, :, None]
    total: Array = reduce(np.add, np.moveaxis(array, 2, 0))
    return total[:, :, None]


def frozen(array: Any) -> Any:
    """A contiguous read-only view (a copy only if the memory is not contiguous); a tensor is only made contiguous."""
    if is_tensor(array):
        return array.contiguous()
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
