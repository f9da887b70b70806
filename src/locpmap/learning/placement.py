"""Where an objective's arrays lie: as they are, or on the device of a backend whose kernels take tensors."""

from __future__ import annotations

import weakref
from importlib import import_module
from typing import Any

import numpy as np

from locpmap.arrays import Array

_cached: dict[tuple[int, str], tuple[weakref.ref[Any], Any]] = {}  # by the array's id and the device


class Host:
    """NumPy arrays, as they are."""

    def place(self, array: Array) -> Any:
        """Return the array as kernels take it."""
        return array

    def place_once(self, array: Array) -> Any:
        """Return the same of an array that nobody writes to and that comes again in every pass."""
        return array

    def double(self, array: Any) -> Any:
        """Return the array in double precision."""
        return array.astype(np.float64, copy=False)

    def like(self, array: Any, other: Any) -> Any:
        """Return the array in the precision of another."""
        return array

    def with_ones(self, features: Any) -> Any:
        """Return features (n, S, D) as a matrix (n · S, D + 1) in double precision; the last column is 1."""
        rows = np.ones((features.shape[0] * features.shape[1], features.shape[2] + 1))
        rows[:, :-1] = features.reshape(len(rows), -1)
        return rows

    def read(self, rows: list[Any]) -> list[Array]:
        """Return sums as NumPy arrays."""
        return rows


class Device(Host):
    """Tensors on a device.  What is kept is moved once and cached for as long as the array lives."""

    def __init__(self, device: str) -> None:
        self._torch, self._device = import_module("torch"), device

    def place(self, array: Array) -> Any:
        return self._torch.tensor(array, device=self._device).contiguous()  # kernels read memory as it lies

    def place_once(self, array: Array) -> Any:
        if isinstance(array, np.memmap):  # may be larger than the device's memory
            return self.place(array)
        key = (id(array), self._device)
        known = _cached.get(key)
        if known is not None and known[0]() is array:  # an id may be given anew
            return known[1]
        tensor = self.place(array)
        _cached[key] = weakref.ref(array, lambda gone: _forget(key, gone)), tensor
        return tensor

    def double(self, array: Any) -> Any:
        return array.double()

    def like(self, array: Any, other: Any) -> Any:
        return array.to(other.dtype)

    def with_ones(self, features: Any) -> Any:
        """In the precision of the features, which is what the kernels compute in."""
        rows = features.flatten(0, 1)
        return self._torch.cat([rows, rows.new_ones(len(rows), 1)], 1)

    def read(self, rows: list[Any]) -> list[Array]:
        """Wait for the device once for all."""
        return list(self._torch.stack(rows).cpu().numpy())


def _forget(key: tuple[int, str], gone: weakref.ref[Any]) -> None:
    if key in _cached and _cached[key][0] is gone:
        del _cached[key]
