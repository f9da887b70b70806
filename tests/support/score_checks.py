"""Checks of scores against their definition, and models without some of their sites."""

from __future__ import annotations

import numpy as np
from tests.oracles.models import Floats, PairwiseModel

from locpmap.potentials import Potentials


def check_scores(pot: Potentials, unary: Floats, edges: np.ndarray, tables: Floats, seed: int = 0) -> None:
    """Check ``score`` and ``local_scores`` against their definition; unary (N, S, L), tables (N, E, L, L)."""
    n_images, n_sites, n_labels = unary.shape
    labels = np.random.default_rng(seed).integers(n_labels, size=(n_images, n_sites))
    total = np.zeros(n_images)
    local = unary.astype(np.float64)
    for n, y in enumerate(labels):
        total[n] = sum(unary[n, i, y[i]] for i in range(n_sites))
        for e, (i, j) in enumerate(edges):
            total[n] += tables[n, e, y[i], y[j]]
            local[n, i] += tables[n, e, :, y[j]]
            local[n, j] += tables[n, e, y[i], :]
    shaped = labels.reshape(*((n_images,) if pot.batched else ()), *pot.structure.shape)
    assert isinstance(pot.score(shaped), np.ndarray if pot.batched else float)
    np.testing.assert_allclose(np.ravel(pot.score(shaped)), total, rtol=1e-12)
    assert pot.local_scores(shaped).shape == (*shaped.shape, n_labels)
    np.testing.assert_allclose(pot.local_scores(shaped).reshape(local.shape), local, rtol=1e-12, atol=1e-12)


def without_sites(model: PairwiseModel, ignored: np.ndarray) -> PairwiseModel:
    """Return the model with the ignored sites and their edges deleted."""
    number = np.cumsum(~ignored) - 1
    remaining = ~ignored[model.edges].any(axis=1)
    return PairwiseModel(model.unary[~ignored], number[model.edges[remaining]], model.tables[remaining])
