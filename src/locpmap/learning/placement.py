"""Where an objective's arrays lie: as they are, or on the device of a backend whose kernels take tensors."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Host:
    """NumPy arrays, as they are."""

    def place(self, array: Array) -> Any:
        """The array as kernels take it."""
        return array

    def keep(self, array: Array) -> Any:
        """The same of an array that nobody writes to and that comes again in every pass."""
        return array

    def zeros(self, count: int) -> Any:
        """So many zeros in double precision."""
        return np.zeros(count)

    def read(self, rows: list[Any]) -> list[Array]:
        """What kernels have made of zeros."""
        return rows


class Device(Host):
    """Tensors.  What is kept is moved once and stays as long as the array lives; what lies on disk is moved anew."""

    def __init__(self) -> None:
        self._torch = import_module("torch")
        self._placement = import_module("locpmap.kernels.torch.placement")

    def place(self, array: Array) -> Any:
        return self._placement.on_device(array)

    def keep(self, array: Array) -> Any:
        return self.place(array) if isinstance(array, np.memmap) else self._placement.kept_on_device(array)

    def zeros(self, count: int) -> Any:
        return self._torch.zeros(count, dtype=self._torch.float64, device=self._placement.device())

    def read(self, rows: list[Any]) -> list[Array]:
        """Wait for the device once for all."""
        return list(self._torch.stack(rows).cpu().numpy())
