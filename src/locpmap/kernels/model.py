"""A pairwise model as flat arrays: what every kernel reads.

The score of a pair of labels (a, b) on edge e of image n is::

    sum over f of  features[n, e, f] · tables[n, e, f, a, b]

An axis of length 1 stands for "the same for all", so a shared table or a constant weight is never expanded.
Potts models have ``tables`` = identity and the weights as their only feature.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Array: TypeAlias = Any  # of NumPy or, in Triton's kernels, a tensor; `class_ptr` is of NumPy there, too

# What a sweep of Gibbs sampling adds to the totals.
NOTHING, VOTES, CONDITIONAL = range(3)
# Marks of sites: bit 0 where something that the site reads has changed since its last visit, bit 1 before its first
# visit, which stores its results whatever the tolerance.
CHANGED, UNVISITED = 1, 3
UNIT = 2.0**40  # conditional probabilities are added up in whole numbers of 1 / UNIT, so that no order of adding counts
QUANTUM = 8  # samples are split at multiples of this, since up to eight of them share a call of Philox


class Model(NamedTuple):
    """Flat arrays (N images, S sites, E edges, L labels, F features); contiguous and read-only."""

    unary: Array  # (N, S, L) float32 or float64
    features: Array  # (1|N, 1|E, F) float64
    tables: Array  # (1|N, 1|E, F, L, L) float64
    potts: bool  # tables are the identity
    edges: Array  # (E, 2) int32
    indptr: Array  # (S + 1,) int64: site i's neighbours are at indptr[i]:indptr[i + 1] of
    neighbour: Array  # (2E,) int32: the site at the other end
    edge: Array  # (2E,) int32: the edge between
    end: Array  # (2E,) uint8: 0 where site i is the edge's first end
    reverse: Array  # (2E,) int32: where the same edge stands in the other end's list
    order: Array  # (S,) int32: the sites, colour class by colour class
    class_ptr: Array  # (C + 1,) int64: where each class begins in `order`
    site_id: Array  # (S,) int64: the global site, which keys the noise


class GridWindow(NamedTuple):
    """A grid with 4 neighbours, and where it lies in a larger one that it may be a window of."""

    height: int
    width: int
    row: int
    column: int
    whole_width: int
    whole_sites: int
