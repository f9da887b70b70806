"""A pairwise model as flat arrays: what every kernel reads.

The score of a pair of labels (a, b) on edge e of image n is::

    sum over f of  features[n, e, f] · tables[n, e, f, a, b]

An axis of length 1 stands for "the same for all", so a shared table or a constant weight is never expanded.
Potts models have ``tables`` = identity and the weights as their only feature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt


class Model(NamedTuple):
    """Flat arrays (N images, S sites, E edges, L labels, F features); contiguous and read-only."""

    unary: npt.NDArray[Any]  # (N, S, L) float32 or float64
    features: npt.NDArray[Any]  # (1|N, 1|E, F) float64
    tables: npt.NDArray[Any]  # (1|N, 1|E, F, L, L) float64
    potts: bool  # tables are the identity
    edges: npt.NDArray[Any]  # (E, 2) int32
    indptr: npt.NDArray[Any]  # (S + 1,) int64: site i's neighbours are at indptr[i]:indptr[i + 1] of
    neighbour: npt.NDArray[Any]  # (2E,) int32: the site at the other end
    edge: npt.NDArray[Any]  # (2E,) int32: the edge between
    end: npt.NDArray[Any]  # (2E,) uint8: 0 where site i is the edge's first end
    reverse: npt.NDArray[Any]  # (2E,) int32: where the same edge stands in the other end's list
    order: npt.NDArray[Any]  # (S,) int32: the sites, colour class by colour class
    class_ptr: npt.NDArray[Any]  # (C + 1,) int64: where each class begins in `order`
    site_id: npt.NDArray[Any]  # (S,) int64: the global site, which keys the noise
