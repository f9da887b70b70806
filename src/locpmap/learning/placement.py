"""Placement of an objective's arrays: NumPy arrays for CPU kernels, tensors on a device for GPU kernels."""

from importlib import import_module
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.triton.cache import cached


class Host:
    """NumPy arrays in host memory, passed to kernels without a copy."""

    def place(self, array: Array) -> Any:
        """Return the array in the form that the kernels take."""
        return array

    def place_once(self, array: Array) -> Any:
        """Return ``place(array)``, cached, for an array that is used in every pass and never modified."""
        return array

    def with_ones(self, features: Any) -> Any:
        """Return features (n, S, D) as a matrix (n · S, D + 1) in double precision; the last column is 1."""
        rows = np.ones((features.shape[0] * features.shape[1], features.shape[2] + 1))
        rows[:, :-1] = features.reshape(len(rows), -1)
        return rows

    def read(self, rows: list[Any]) -> list[Array]:
        """Return the sums of groups as NumPy arrays."""
        return rows


class Device(Host):
    """Tensors on a device. Arrays given to `place_once` are copied once and cached during their lifetime."""

    def __init__(self, device: str) -> None:
        self._torch, self._device = import_module("torch"), device

    def place(self, array: Array) -> Any:
        return self._torch.tensor(array, device=self._device).contiguous()  # kernels assume contiguous memory

    def place_once(self, array: Array) -> Any:
        if isinstance(array, np.memmap):  # not cached: may be larger than the device's memory
            return self.place(array)
        return cached((array,), ("placed", self._device), lambda: self.place(array))

    def with_ones(self, features: Any) -> Any:
        """Return features as a matrix (n · S, D + 1) in their own precision, in which the kernels compute."""
        rows = features.flatten(0, 1)
        return self._torch.cat([rows, rows.new_ones(len(rows), 1)], 1)

    def read(self, rows: list[Any]) -> list[Array]:
        """Copy all sums to the host with one synchronisation."""
        return list(self._torch.stack(rows).cpu().numpy())
