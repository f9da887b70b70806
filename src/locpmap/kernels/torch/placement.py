"""Arrays on the device."""

from __future__ import annotations

import weakref
from typing import Any

import numpy.typing as npt
import torch

_kept: dict[int, tuple[weakref.ref[Any], torch.Tensor]] = {}  # by the array's id


def device() -> torch.device:
    """The GPU, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def on_device(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor of its own on the device, in C order, since Triton's kernels read memory as it lies."""
    return torch.tensor(array, device=device()).contiguous()


def kept_on_device(array: npt.NDArray[Any]) -> torch.Tensor:
    """The same of an array that nobody writes to: moved once, and kept for as long as the array lives."""
    key = id(array)
    known = _kept.get(key)
    if known is not None and known[0]() is array:  # an id may be given anew
        return known[1]
    tensor = on_device(array)
    _kept[key] = weakref.ref(array, lambda gone: _forget(key, gone)), tensor
    return tensor


def _forget(key: int, gone: weakref.ref[Any]) -> None:
    if key in _kept and _kept[key][0] is gone:
        del _kept[key]
