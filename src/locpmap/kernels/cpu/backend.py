"""The backends "reference" and "numba"."""

from typing import Any

import numpy as np

from locpmap.kernels.cpu.messages import Passing
from locpmap.kernels.cpu.sampling import Sampling, links_of
from locpmap.kernels.cpu.totals import Totals
from locpmap.kernels.likelihood import Likelihoods
from locpmap.kernels.model import NOTHING, Array
from locpmap.kernels.reference.scores import volume_scores
from locpmap.kernels.spec import Advanced, Chain, Kernels, ModelView
from locpmap.kernels.threads import ranges

MAX_SPREAD = 650.0  # difference of scores below which no entry of a table of exponentials underflows


class CpuKernels(Sampling, Totals, Passing, Likelihoods):
    """Kernels on NumPy arrays; ``name`` is the backend that supplies the per-range functions."""

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return CpuKernels, (self.name, self.threads.n_threads)

    def sweeps_per_step(self, model: ModelView) -> int:
        """Return 1: a call does not wait for a device."""
        return 1

    def precision(self, model: ModelView) -> Any:
        return np.dtype(np.float64)

    def score(self, model: ModelView, labels: Array) -> Array:
        if model.potts and model.volume is not None:
            return volume_scores(model.unary, links_of(model), labels)
        terms = np.zeros(labels.shape)
        self.sweep("score_terms", model.flat, labels, terms)
        return terms.sum(axis=1)

    def gibbs(self, model: ModelView, chain: Chain, n_sweeps: int, *, keep: bool = False) -> Array:
        totals = np.zeros((0, 0, 0)) if chain.totals is None else chain.totals
        kept = np.empty((chain.counted(n_sweeps) if keep else 0, *chain.labels.shape), np.int16)
        n_kept = 0
        for _ in range(n_sweeps):
            counts = chain.counted(1) > 0
            where = (chain.labels, totals, chain.adds if counts else NOTHING, chain.temperature)
            noise = (*chain.key, chain.sweeps + 1, chain.first_image)
            if chain.clusters:
                self.by_images("gibbs_clusters", model.flat, *where, *noise)
            elif chain.draws is not None:
                linear = (chain.draws.width + 1) * spread(model) < MAX_SPREAD * chain.temperature
                self.by_images("gibbs_blocks", model.flat, chain.draws, *where, linear, *noise)
            else:
                self.sweep("gibbs", model.flat, *where, *noise)
            chain.sweeps += 1
            if keep and counts:
                kept[n_kept] = chain.labels
                n_kept += 1
        return kept

    def gibbs_chains(self, model: ModelView, chains: list[Chain], n_sweeps: int, *, keep: bool = False) -> list[Array]:
        """Advance chains, each in one thread if there are at least as many chains as threads."""
        if len(chains) < self.threads.n_threads:
            return [self.gibbs(model, chain, n_sweeps, keep=keep) for chain in chains]
        alone = CpuKernels(self.name)
        if chains[0].draws is not None:
            spread(model)  # computed here, before threads share it
        jobs = [(chains[begin:stop],) for begin, stop in ranges(len(chains), self.threads.n_threads)]
        parts = self.threads.map(lambda some: [alone.gibbs(model, c, n_sweeps, keep=keep) for c in some], jobs)
        return [kept for part in parts for kept in part]

    def mean_field(self, model: ModelView, beliefs: Array, marks: Array, tolerance: float, n_sweeps: int) -> Advanced:
        n_active = marks.size
        for made in range(1, n_sweeps + 1):
            self.sweep("mean_field", model.flat, beliefs, marks, tolerance, n_active=n_active)
            n_active = int(np.count_nonzero(marks))
            if n_active == 0:
                return Advanced(made, settled=True)
        return Advanced(n_sweeps, settled=False)

    def mean_field_bound(self, model: ModelView, beliefs: Array) -> Array:
        terms = np.zeros(beliefs.shape[:2])
        self.sweep("mean_field_bound", model.flat, beliefs, terms)
        return terms.sum(axis=1)

    def expand(self, model: ModelView, labels: Array, alpha: int, images: Array) -> Array:
        gains, flat = np.empty(len(images)), model.flat
        parts = ranges(len(images), self.threads.n_threads)
        self.threads.map(self.kernel_of("expand"), [(flat, labels, alpha, images, gains, *part) for part in parts])
        return gains


def spread(model: ModelView) -> float:
    """Return a bound of the differences that a change of one label makes to finite scores; cached.

    It is infinite if tables forbid pairs: then some labels can change only together with others, any number of them.
    """
    if "spread" not in model.cache:
        flat = model.flat
        finite = np.isfinite(flat.unary)
        top = np.where(finite, flat.unary, -np.inf).max(axis=2)
        unaries = top - np.where(finite, flat.unary, top[:, :, None]).min(axis=2)  # (N, S)
        largest = np.inf
        if np.isfinite(flat.tables).all():
            of_tables = np.abs(flat.features) * np.ptp(flat.tables, axis=(3, 4))  # (1|N, 1|E, F)
            of_edges = np.broadcast_to(of_tables.sum(axis=2).max(axis=0), len(flat.edges))
            at_sites = np.bincount(flat.edges.T.ravel(), np.tile(of_edges, 2), flat.unary.shape[1])
            largest = float((at_sites + unaries.max(axis=0)).max())
        model.cache["spread"] = largest
    return float(model.cache["spread"])


_checked: type[Kernels] = CpuKernels
