"""Exact samples of attractive two-label models, without burn-in (Propp & Wilson 1996).

Heat-bath sweeps with shared uniforms preserve ``lower <= upper`` when every coupling attracts.  Two chains start at
all-0 and all-1, far enough in the past that they meet before time 0.  Every other start then ends in the same state,
so the common state at time 0 is a sample of p.  The uniforms of a time step must be the same in every attempt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.special import expit

from .models import Floats, Ints


def exact_samples(
    unary: Floats, edges: Ints, tables: Floats, n_samples: int, rng: np.random.Generator, max_sweeps: int = 2**16
) -> npt.NDArray[np.int64]:
    """Draw `n_samples` independent samples of p, (n_samples, S).

    All samples are simulated in parallel.  A sample is complete once its two chains have met.  Starting further in the
    past would not change it, so all samples can share the doubling of the start time.
    """
    bias, coupling = _linear_form(unary, edges, tables)
    updates = [(sites, bias[sites, None], coupling[sites]) for sites in _colour_classes(coupling)]
    labels = np.zeros((len(unary), n_samples), np.int64)
    waiting = np.arange(n_samples)
    seeds: list[int] = []  # seeds[0] drives the last sweep, seeds[k] the 2^(k - 1) sweeps before those of seeds[k - 1]
    while len(waiting):
        if 2 ** len(seeds) > max_sweeps:
            raise RuntimeError(f"{len(waiting)} of {n_samples} samples have not coupled within {max_sweeps} sweeps")
        seeds.append(int(rng.integers(2**63)))
        lower, upper = np.zeros((len(unary), len(waiting))), np.ones((len(unary), len(waiting)))
        for k in reversed(range(len(seeds))):
            replay = np.random.default_rng(seeds[k])
            for _ in range(2 ** max(k - 1, 0)):
                uniform = replay.random((len(unary), n_samples))[:, waiting]
                for sites, constant, weights in updates:
                    for state in (lower, upper):
                        state[sites] = uniform[sites] < expit(constant + weights @ state)
        met = (lower == upper).all(axis=0)
        labels[:, waiting[met]] = lower[:, met].astype(np.int64)
        waiting = waiting[~met]
    return labels.T


def _linear_form(unary: Floats, edges: Ints, tables: Floats) -> tuple[Floats, csr_array]:
    """Return bias (S,) and coupling (S, S) >= 0 such that the conditional log-odds are ``bias + coupling @ y``."""
    n_sites, n_labels = unary.shape
    weight = tables[:, 1, 1] + tables[:, 0, 0] - tables[:, 0, 1] - tables[:, 1, 0]
    if n_labels != 2 or not np.isfinite(tables).all() or (weight < 0).any():
        raise ValueError("expected two labels and finite tables with t00 + t11 >= t01 + t10 on every edge")
    bias = unary[:, 1] - unary[:, 0]
    np.add.at(bias, edges[:, 0], tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(bias, edges[:, 1], tables[:, 0, 1] - tables[:, 0, 0])
    both = np.concatenate([edges, edges[:, ::-1]])
    coupling = coo_array((np.tile(weight, 2), (both[:, 0], both[:, 1])), shape=(n_sites, n_sites))
    return bias, coupling.tocsr()


def _colour_classes(coupling: csr_array) -> list[npt.NDArray[np.int64]]:
    """Colour the sites greedily; sites of one class share no edge and can be updated simultaneously."""
    colour = np.full(coupling.shape[0], -1)
    for site in range(len(colour)):
        taken = set(colour[coupling.indices[coupling.indptr[site] : coupling.indptr[site + 1]]].tolist())
        colour[site] = next(c for c in range(len(colour)) if c not in taken)
    return [np.flatnonzero(colour == c) for c in range(colour.max() + 1)]
