"""Conversion between the caller's arrays and internal arrays.

Internally, data on the CPU are NumPy arrays; data on a GPU or another accelerator stay there as torch tensors.
Results have the same kind of array as the input.  This module imports torch only where the caller already uses tensors.
"""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError

Array: TypeAlias = npt.NDArray[Any]

MAX_COPY = 2**24  # bytes; larger inputs are shared, not copied
SINGLE_ONLY = ("mps",)  # device types without double precision
BLOCK = 2048  # sites whose samples are copied together


def is_tensor(value: object) -> bool:
    """Return whether the value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def on_gpu(value: object) -> bool:
    """Return whether the value is a tensor on a GPU or another accelerator."""
    return is_tensor(value) and value.device.type not in ("cpu", "meta")  # type: ignore[attr-defined]


def current_device(array: Any) -> AbstractContextManager[Any]:
    """Return a context that launches on the array's GPU, which need not be torch's current one."""
    if not is_tensor(array) or array.device.type != "cuda":
        return nullcontext()
    cuda = sys.modules["torch"].cuda
    return nullcontext() if array.device.index == cuda.current_device() else cuda.device(array.device)  # slow to enter


def wait_for_device(array: Any) -> None:
    """Wait until all work launched on the array's device has finished."""
    if is_tensor(array) and array.device.type not in ("cpu", "meta"):
        sys.modules["torch"].accelerator.synchronize(array.device)


class Stopwatch:
    """Timer from ``began``, a time of the host's clock, to :meth:`stop`.  Reading :attr:`seconds` waits for a GPU."""

    def __init__(self, array: Any, began: float) -> None:
        self._array, self._began = array, began
        self._events: list[Any] = []
        if is_tensor(array) and array.device.type == "cuda":
            # Pass the index: looking up the device costs more than recording the event.
            self._stream = sys.modules["torch"].cuda.current_stream(array.device.index)
            self._mark()
        self._host = time.perf_counter() - began

    def _mark(self) -> None:
        event = sys.modules["torch"].cuda.Event(enable_timing=True)
        self._events.append(self._stream.record_event(event))

    def stop(self) -> None:
        """Stop the timer when the work launched so far on the device is done."""
        if self._events:
            self._mark()
        else:
            wait_for_device(self._array)  # another accelerator
            self._host = time.perf_counter() - self._began

    @property
    def seconds(self) -> float:
        """Elapsed time in seconds.  Reading it waits for the device."""
        if not self._events:
            return self._host
        begin, end = self._events
        end.synchronize()
        return self._host + float(begin.elapsed_time(end)) / 1000


def namespace(array: object) -> Any:
    """Return the module whose functions accept the array: torch for tensors, otherwise NumPy."""
    return sys.modules["torch"] if is_tensor(array) else np


def to_numpy(value: object, name: str) -> npt.NDArray[Any]:
    """Return the value as a NumPy array, without a copy where possible."""
    if is_tensor(value):
        tensor = _dense(value, name).detach().resolve_conj().resolve_neg().cpu()
        value = tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor  # such as bfloat16
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
    """Raise if a masked array has masked entries; ``instead`` tells the user the alternative."""
    if _has_masked(value):
        raise InputError(f"{name} is a masked array with masked entries, expected a plain array: {instead}")


def _has_masked(value: object) -> bool:
    """Return whether a masked array, or one in a list, has a masked entry."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        return any(map(_has_masked, value))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def _dense(tensor: Any, name: str) -> Any:
    """Return the tensor, or raise if it is nested, quantized, sparse or on the device meta."""
    plain = tensor.layout == sys.modules["torch"].strided
    for wrong, problem in (
        (tensor.is_nested, "nested, expected one shape"),
        (tensor.is_meta, "on the device meta, expected a device with data"),
        (tensor.is_quantized, "quantized, expected plain numbers: call its dequantize()"),
        (not plain, f"of layout {tensor.layout}, expected a dense one: call its to_dense()"),
    ):
        if wrong:
            raise InputTypeError(f"{name} is a tensor {problem}")
    return tensor


def to_float(value: object, name: str, like: object = None) -> Any:
    """Return an array in single or double precision: half becomes single, integers become double.

    Small arrays are copied, so that the caller may change the original.  A tensor on a GPU stays on its device.  If
    ``like`` is on a GPU, any value becomes a tensor on the same device.
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
    half = tensor.is_floating_point() and tensor.itemsize < 4
    dtype = torch.float32 if half else tensor.dtype if tensor.dtype.is_floating_point else torch.float64
    copy = is_tensor(value) and tensor.nbytes <= MAX_COPY
    return tensor.to(device=like.device, dtype=dtype_like(like, dtype), copy=copy).contiguous()


def dtype_like(like: Any, dtype: Any) -> Any:
    """Return the dtype for the device of ``like``: float32 for float64 if it lacks double precision."""
    return _torch_dtype(dtype, like.device.type in SINGLE_ONLY) if is_tensor(like) else np.dtype(dtype)


@cache
def _torch_dtype(dtype: Any, single_only: bool) -> Any:
    torch = import_module("torch")
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return torch.float32 if single_only and dtype == torch.float64 else dtype


def to_labels(value: object, name: str) -> npt.NDArray[np.int64]:
    """Return the value as integer labels."""
    array = to_numpy(value, name)
    if array.dtype.kind == "f":
        raise InputTypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
        raise InputError(f"{name} contains {array.max()}, expected numbers below 2^63")
    return array.astype(np.int64, copy=False)


def copy_if_small(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy an array of up to 16 MB, so that the caller may change the original; return a larger one unchanged."""
    return array.copy() if array.nbytes <= MAX_COPY else array


def cast(array: Any, dtype: Any) -> Any:
    """Return the array with another dtype, given as a dtype of the same library or by name."""
    if is_tensor(array):
        there = dtype_like(array, dtype)
        return array if array.dtype == there else array.to(there)
    with np.errstate(over="ignore"):  # becomes infinite, which is checked where it matters
        return array.astype(dtype, copy=False)


def place_like(like: Any, array: npt.NDArray[Any]) -> Any:
    """Return the array as a tensor on the device of ``like``, or unchanged if ``like`` is not a tensor."""
    return _placed(import_module("torch").from_numpy(np.array(array)), like.device) if is_tensor(like) else array


@dataclass(frozen=True)
class Restore:
    """Callable that converts results to NumPy arrays, or to tensors on the given device."""

    device: str | None = None

    @classmethod
    def like(cls, value: object) -> Self:
        """Return a converter to the kind of array, and the device, of the value."""
        return cls(str(value.device)) if is_tensor(value) else cls()  # type: ignore[attr-defined]

    def __call__(self, array: Any) -> Any:
        if is_tensor(array):
            return array.cpu().numpy() if self.device is None else _placed(array, self.device)
        if self.device is None:
            return array
        # Import torch: a process that received the potentials may not have imported it.
        return _placed(import_module("torch").from_numpy(np.require(array, requirements=["C", "W"])), self.device)


def _placed(tensor: Any, device: Any) -> Any:
    single_only = str(device).partition(":")[0] in SINGLE_ONLY
    dtype = _torch_dtype(tensor.dtype, single_only)
    return tensor if tensor.dtype == dtype and str(tensor.device) == device else tensor.to(device=device, dtype=dtype)


def extremes(*arrays: Any) -> list[tuple[float, float]]:
    """Return the smallest and the largest value of every array, NaN if it contains NaN; one transfer for all tensors.

    >>> extremes(np.array([3.0, 1.0]), np.array([np.nan]))
    [(1.0, 3.0), (nan, nan)]
    """
    ends = [end for array in arrays for end in _ends(array)]
    found = sys.modules["torch"].stack(ends).tolist() if ends and is_tensor(ends[0]) else list(map(float, ends))
    return list(zip(found[::2], found[1::2], strict=True))


def _ends(array: Any) -> tuple[Any, Any]:
    if is_tensor(array) and array.device.type == "cuda":
        smallest, largest = array.aminmax()  # one launch
        return smallest, largest
    return array.min(), array.max()


def of_images(array: Any, lo: int, hi: int) -> Any:
    """Return images lo to hi, or the array itself if it has no others: slicing a tensor takes time."""
    return array if (lo, hi) == (0, array.shape[0]) else array[lo:hi]


def copy_by_sample(labels: Any, out: Any) -> None:
    """Copy labels (n, S, R) to ``out`` (R, n, S), on the CPU in blocks that fit into its cache."""
    if is_tensor(labels):
        out.copy_(labels.movedim(2, 0))
        return
    n_sites = min(labels.shape[1], BLOCK)
    n_images = max(1, BLOCK // n_sites)
    for lo in range(0, len(labels), n_images):
        for begin in range(0, labels.shape[1], n_sites):
            block = slice(lo, lo + n_images), slice(begin, begin + n_sites)
            out[:, *block] = np.moveaxis(labels[block], 2, 0)


def best_labels(scores: Any) -> Any:
    """Return the label with the largest of its scores (N, S, L) at every site, (N, S); the smallest one of a tie.

    >>> best_labels(np.array([[[1.0, 1.0], [0.0, 2.0]]]))
    array([[0, 1]])
    """
    if scores.shape[2] == 2:  # several times faster than argmax
        return cast(scores[:, :, 1] > scores[:, :, 0], "int64")
    return scores.argmax(axis=2)


def label_sums(array: Any) -> Any:
    """Return the sums (N, S, 1) over the last of three axes, with the same rounding at every site."""
    if is_tensor(array):
        return array.sum(axis=2)[:, :, None]
    total: Array = reduce(np.add, np.moveaxis(array, 2, 0))  # for few labels several times faster than `sum`
    return total[:, :, None]


def frozen(array: Any) -> Any:
    """Return a contiguous read-only view, or a copy if the memory is not contiguous.  Tensors stay writable."""
    if is_tensor(array):
        return array.contiguous()
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
