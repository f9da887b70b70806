"""Labelled or unlabelled inputs of a log-linear model as flat arrays: what the learning kernels read.

With weights ``U`` (D + 1, L), the last row being a bias, and tables ``T`` (G, F, L, L), the model's scores are::

    unary[n, i, k]      = sum over d of  unary[n, i, d] · U[d, k]  +  U[D, k]
    pairwise[n, e, a, b] = sum over f of  pairwise[n, e, f] · T[group[e], f, a, b]
"""

from __future__ import annotations

from typing import NamedTuple

from locpmap.kernels.model import Array


class Observations(NamedTuple):
    """N inputs on one graph (S sites, E edges, D unary and F pairwise features); contiguous and read-only."""

    unary: Array  # (N, S, D) float32 or float64
    pairwise: Array  # (1|N, 1|E, F), the same precision
    group: Array  # (E,) uint8: which of the G tables an edge uses (its direction, or 0)
    edges: Array  # (E, 2) int32
    indptr: Array  # (S + 1,) int64: site i's neighbours are at indptr[i]:indptr[i + 1] of
    neighbour: Array  # (2E,) int32: the site at the other end
    edge: Array  # (2E,) int32: the edge between
    end: Array  # (2E,) uint8: 0 where site i is the edge's first end
