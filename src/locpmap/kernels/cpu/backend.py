"""The backends "reference" and "numba"."""

from typing import Any

import numpy as np

from locpmap.kernels.cpu.messages import Passing
from locpmap.kernels.cpu.sampling import Sampling
from locpmap.kernels.likelihood import Likelihoods
from locpmap.kernels.model import NOTHING, Array
from locpmap.kernels.spec import Advanced, Chain, Kernels, ModelView


class CpuKernels(Sampling, Passing, Likelihoods):
    """Kernels on NumPy arrays; ``name`` is the backend that supplies the per-range functions."""

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return CpuKernels, (self.name, self.threads.n_threads)

    def sweeps_per_step(self, model: ModelView) -> int:
        """Return 1: a call does not wait for a device."""
        return 1

    def precision(self, model: ModelView) -> Any:
        return np.dtype(np.float64)

    def score(self, model: ModelView, labels: Array) -> Array:
        terms = np.zeros(labels.shape)
        self.sweep("score_terms", model.flat, labels, terms)
        return terms.sum(axis=1)

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        totals = np.zeros((0, 0, 0)) if chain.totals is None else chain.totals
        kept = np.empty((chain.counted(n_sweeps) if keep else 0, *chain.labels.shape), np.int16)
        n_kept = 0
        for _ in range(n_sweeps):
            counts = chain.counted(1) > 0
            how = (chain.adds if counts else NOTHING, chain.temperature, *chain.key, chain.sweeps + 1)
            self.sweep("gibbs", model.flat, chain.labels, totals, *how, chain.first_image)
            chain.sweeps += 1
            if keep and counts:
                kept[n_kept] = chain.labels
                n_kept += 1
        return kept

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        for made in range(1, n_sweeps + 1):
            self.sweep("mean_field", model.flat, beliefs, marks, tolerance)
            if not marks.any():
                return Advanced(made, settled=True)
        return Advanced(n_sweeps, settled=False)

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        terms = np.zeros(beliefs.shape[:2])
        self.sweep("mean_field_bound", model.flat, beliefs, terms)
        return terms.sum(axis=1)


_checked: type[Kernels] = CpuKernels
