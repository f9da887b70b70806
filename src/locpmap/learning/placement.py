"""Placement of an objective's arrays: NumPy arrays for CPU kernels, tensors on a device for GPU kernels."""

from importlib import import_module
from typing import Any

import numpy as np

from locpmap.arrays import Array, is_tensor
from locpmap.kernels.triton.cache import cached


def placed(array: Array, device: str | None) -> Any:
    """Return a tensor on the device, or the array itself for the device None."""
    return array if device is None else import_module("torch").tensor(array, device=device).contiguous()


def placed_once(array: Array, device: str | None) -> Any:
    """Return ``placed(array, device)``, cached, for an array that is used in every pass and never modified."""
    if device is None or isinstance(array, np.memmap):  # not cached: may be larger than the device's memory
        return placed(array, device)
    return cached((array,), ("placed", device), lambda: placed(array, device))


def with_ones(features: Any) -> Any:
    """Return features (n, S, D) as a matrix (n · S, D + 1) whose last column is 1; NumPy arrays become double."""
    if is_tensor(features):
        rows = features.flatten(0, 1)
        return import_module("torch").cat([rows, rows.new_ones(len(rows), 1)], 1)
    matrix = np.ones((features.shape[0] * features.shape[1], features.shape[2] + 1))
    matrix[:, :-1] = features.reshape(len(matrix), -1)
    return matrix


def on_host(rows: list[Any]) -> list[Array]:
    """Return the sums of groups as NumPy arrays, copied from a device with one synchronisation."""
    return list(import_module("torch").stack(rows).cpu().numpy()) if is_tensor(rows[0]) else rows
