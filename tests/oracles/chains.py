"""Dynamic programming on chains and on trees, in the log domain."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .models import Floats, Ints


def forward_backward(unary: Floats, tables: Floats) -> tuple[float, Floats]:
    """Return log Z and the marginals (T, L) of a chain with unary (T, L) and tables (T − 1, L, L); O(T · L²)."""
    forward, backward = unary.copy(), np.zeros_like(unary)
    for t in range(1, len(unary)):
        forward[t] += np.logaddexp.reduce(forward[t - 1][:, None] + tables[t - 1], axis=0)
    for t in range(len(unary) - 1, 0, -1):
        backward[t - 1] = np.logaddexp.reduce(tables[t - 1] + unary[t] + backward[t], axis=1)
    log_partition = float(np.logaddexp.reduce(forward[-1]))
    return log_partition, np.exp(forward + backward - log_partition)


def viterbi(unary: Floats, tables: Floats) -> tuple[float, Ints]:
    """Return the largest score of a chain and a labelling (T,) that attains it; O(T · L²)."""
    n_steps = len(unary)
    best = unary[0]
    backpointers = np.zeros(unary.shape, np.int64)
    for t in range(1, n_steps):
        candidates = best[:, None] + tables[t - 1]
        backpointers[t] = candidates.argmax(axis=0)
        best = candidates.max(axis=0) + unary[t]
    labels = np.full(n_steps, best.argmax())
    for t in range(n_steps - 1, 0, -1):
        labels[t - 1] = backpointers[t, labels[t]]
    return float(best.max()), labels


class Tree:
    """Exact inference on a tree or forest.  Messages are recursive, which limits its depth to a few hundred sites."""

    def __init__(self, unary: Floats, edges: Ints, tables: Floats) -> None:
        n_sites = len(unary)
        graph = coo_array((np.ones(len(edges)), edges.T), shape=(n_sites, n_sites))
        n_trees, tree_of_site = connected_components(graph, directed=False)
        if len(edges) != n_sites - n_trees:
            raise ValueError(f"{len(edges)} edges make a cycle among {n_sites} sites in {n_trees} components")
        self.unary = unary
        self.roots = np.unique(tree_of_site, return_index=True)[1].tolist()
        self.table: list[dict[int, Floats]] = [{} for _ in range(n_sites)]  # table[i][j]: [label of i, label of j]
        for (i, j), table in zip(edges.tolist(), tables, strict=True):
            self.table[i][j], self.table[j][i] = table, table.T

    @property
    def log_partition(self) -> float:
        belief = self._belief(np.logaddexp)
        return float(sum(np.logaddexp.reduce(belief(root)) for root in self.roots))

    @property
    def marginals(self) -> Floats:
        """``p(y_i)``, (S, L)."""
        belief = self._belief(np.logaddexp)
        beliefs = np.stack([belief(site) for site in range(len(self.unary))])
        marginals: Floats = np.exp(beliefs - np.logaddexp.reduce(beliefs, axis=1, keepdims=True))
        return marginals

    @property
    def map_score(self) -> float:
        belief = self._belief(np.maximum)
        return float(sum(belief(root).max() for root in self.roots))

    @property
    def map_labels(self) -> Ints:
        """A labelling of largest score, (S,).  Each site takes its best label given its parent's, roots first."""
        belief = self._belief(np.maximum)
        labels = np.empty(len(self.unary), np.int64)
        ready: list[tuple[int, int | None]] = [(root, None) for root in self.roots]
        while ready:
            site, parent = ready.pop()
            above = 0.0 if parent is None else self.table[parent][site][labels[parent]]
            labels[site] = (belief(site, parent) + above).argmax()
            ready += [(child, site) for child in self.table[site] if child != parent]
        return labels

    def _belief(self, add: np.ufunc) -> Callable[..., Floats]:
        """Return a function that computes a site's beliefs, (L,), from all its branches except ``without``."""

        @cache
        def message(source: int, target: int) -> Floats:
            total: Floats = add.reduce(belief(source, target)[:, None] + self.table[source][target], axis=0)
            return total

        def belief(site: int, without: int | None = None) -> Floats:
            return self.unary[site] + sum(message(other, site) for other in self.table[site] if other != without)

        return belief
