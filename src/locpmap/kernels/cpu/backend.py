"""The backends "reference" and "numba"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locpmap.kernels.cpu.messages import Passing
from locpmap.kernels.cpu.sampling import Sampling
from locpmap.kernels.cpu.sweeps import Sweeps
from locpmap.kernels.likelihood import Likelihoods

if TYPE_CHECKING:
    from locpmap.kernels.spec import Kernels


class CpuKernels(Sampling, Sweeps, Passing, Likelihoods):
    """Kernels on NumPy arrays; ``name`` is the backend that supplies the per-range functions."""

    def __reduce__(self) -> tuple[type[CpuKernels], tuple[str, int]]:
        return CpuKernels, (self.name, self.threads.n_threads)


if TYPE_CHECKING:
    _checked: type[Kernels] = CpuKernels
