"""A pairwise model as flat arrays, the input of every kernel.

The score of a pair of labels (a, b) on edge e of image n is::

    sum over f of  features[n, e, f] · tables[n, e, f, a, b]

An axis of length 1 is shared by all images or edges, so a shared table or a constant weight is never expanded.
Potts models have the identity as ``tables`` and the Potts weights as their only feature.

Neighbour lists are concatenated in compressed sparse row format.  A *slot* is an index into them: slots
``indptr[i]:indptr[i + 1]`` are the neighbours of site i, and every edge has two slots, one per end.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = Any  # NumPy array or, for Triton, torch tensor (except `class_ptr`, always NumPy)

# Additions of a counted Gibbs sweep to the totals: none, 1 at the label, or the conditional probabilities.
NOTHING, VOTES, CONDITIONAL = range(3)
# *Marks* of sites: a sweep skips sites with mark 0.  Bit 0: an input of the site (a neighbour's belief
# or message) changed since the last visit.  Bit 1: not visited yet; the first visit ignores the tolerance.
CHANGED, UNVISITED = 1, 3
UNIT = 2.0**40  # conditional probabilities are summed as integers in units of 1 / UNIT, exactly in any order
NARROW = 2.0**24  # the same for sums of 32 bits: the precision of probabilities in float32
QUANTUM = 8  # samples are divided at multiples of this: up to eight of them share a call of Philox


class Model(NamedTuple):
    """Flat arrays (N images, S sites, E edges, L labels, F features); contiguous and read-only."""

    unary: Array  # (N, S, L) float32 or float64
    features: Array  # (1|N, 1|E, F) float64
    tables: Array  # (1|N, 1|E, F, L, L) float64
    potts: bool  # whether the tables are the identity
    edges: Array  # (E, 2) int32
    indptr: Array  # (S + 1,) int64: the slots of site i are indptr[i]:indptr[i + 1]
    neighbour: Array  # (2E,) int32: the neighbour at a slot
    edge: Array  # (2E,) int32: the edge to it
    end: Array  # (2E,) uint8: 0 if site i is the edge's first end, else 1
    reverse: Array  # (2E,) int32: the slot of the same edge at its other end
    order: Array  # (S,) int32: the sites, sorted by colour class (no two neighbours share a class)
    class_ptr: Array  # (C + 1,) int64: start of each class in `order`
    site_id: Array  # (S,) int64: index of the site in the whole image; part of the noise counter


class GridWindow(NamedTuple):
    """A 4-connected grid, or a window of one, with the window's position in the whole grid."""

    height: int
    width: int
    row: int
    column: int
    whole_width: int
    whole_sites: int


class VolumeWindow(NamedTuple):
    """A volume, or a window of one, with the window's position in the whole volume."""

    shape: tuple[int, int, int]  # (D, H, W)
    corner: tuple[int, int, int]  # plane, row and column of the first site in the whole volume
    plane_shape: tuple[int, int]  # height and width of the whole volume
    steps: tuple[tuple[int, int, int], ...]  # from the first end of an edge to its second


def unit_of(dtype: Any) -> float:
    """Return the number of units of a probability 1 in sums of a type, int64 or uint32."""
    return NARROW if dtype == "uint32" else UNIT


def label_dtype(n_labels: int) -> Any:
    """Return the smallest type that kernels are compiled for and that can hold the labels of samples."""
    return np.uint8 if n_labels <= 256 else np.int16
