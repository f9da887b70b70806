"""Exact quantities of a tiny model, by enumerating its ``N = L**S`` labellings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .models import Floats, Ints

MAX_LABELLINGS = 2**20


class Enumeration:
    """All labellings of a pairwise model, numbered with the last site fastest.

    Time and memory O(N · (S + E)).  A labelling with a forbidden label or pair has score −inf and probability 0.
    """

    def __init__(self, unary: Floats, edges: Ints, tables: Floats) -> None:
        self.n_sites, self.n_labels = unary.shape
        if self.n_labels**self.n_sites > MAX_LABELLINGS:
            raise ValueError(f"{self.n_labels}**{self.n_sites} labellings; expected at most {MAX_LABELLINGS}")
        self.unary, self.edges, self.tables = unary, edges, tables

    @cached_property
    def labellings(self) -> Ints:
        """All labellings, (N, S)."""
        return np.indices((self.n_labels,) * self.n_sites).reshape(self.n_sites, -1).T

    @cached_property
    def scores(self) -> Floats:
        """Score of every labelling, (N,)."""
        label = self.labellings.T
        scores = np.zeros(len(self.labellings))
        for unary, labels in zip(self.unary, label, strict=True):
            scores += unary[labels]
        for (i, j), table in zip(self.edges, self.tables, strict=True):
            scores += table[label[i], label[j]]
        return scores

    @cached_property
    def log_partition(self) -> float:
        """``log Σ_y exp score(y)``."""
        return float(np.logaddexp.reduce(self.scores))

    @cached_property
    def probability(self) -> Floats:
        """``p(y)``, (N,)."""
        return np.exp(self.scores - self.log_partition)

    @cached_property
    def marginals(self) -> Floats:
        """``p(y_i)``, (S, L)."""
        return np.stack([self._histogram(labels, self.n_labels) for labels in self.labellings.T])

    @cached_property
    def edge_marginals(self) -> Floats:
        """``p(y_i, y_j)`` of every edge, (E, L, L)."""
        n, label = self.n_labels, self.labellings.T
        joint = [self._histogram(label[i] * n + label[j], n * n) for i, j in self.edges]
        return np.reshape(joint, (-1, n, n))

    @property
    def map_labels(self) -> Ints:
        """A labelling of largest score, (S,)."""
        return self.labellings[int(self.scores.argmax())].copy()

    @property
    def map_score(self) -> float:
        return float(self.scores.max())

    def block_index(self, block: Sequence[int]) -> Ints:
        """Return labelling numbers, (L**|block|, L**(S − |block|)); a column fixes all labels outside the block."""
        number = np.arange(len(self.labellings)).reshape((self.n_labels,) * self.n_sites)
        front: Ints = np.moveaxis(number, list(block), list(range(len(block))))
        return front.reshape(self.n_labels ** len(block), -1)

    def block_conditional(self, block: Sequence[int]) -> Floats:
        """Return ``p(y_β | y_¬β)`` of every y, (N,); 0 where all labellings that agree with y_¬β are forbidden."""
        index = self.block_index(block)
        scores = self.scores[index]
        best = scores.max(axis=0)
        weight = np.exp(scores - np.where(np.isfinite(best), best, 0.0))
        total = weight.sum(axis=0)
        conditional = np.empty(len(self.scores))
        conditional[index] = weight / np.where(total > 0, total, 1.0)
        return conditional

    def block_product(self, blocks: Sequence[Sequence[int]]) -> Floats:
        """Return ``Π_β p(y_β | y_¬β)`` of every y, (N,): by the theorem, the probability of a local maximum at y."""
        product = np.ones(len(self.scores))
        for block in blocks:
            product *= self.block_conditional(block)
        return product

    def expected_maxima(self, blocks: Sequence[Sequence[int]]) -> float:
        """Return ``Z_B = Σ_y Π_β p(y_β | y_¬β)``, the expected number of local maxima."""
        return float(self.block_product(blocks).sum())

    def _histogram(self, value: Ints, n_values: int) -> Floats:
        return np.bincount(value, weights=self.probability, minlength=n_values).astype(np.float64)
