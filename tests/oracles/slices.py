"""Exact log Z of a long, thin volume, slice by slice along the last axis: a chain whose states are labelled slices."""

from __future__ import annotations

from itertools import product

import numpy as np

from .models import Floats

Site = tuple[int, int, int]
Spacing = tuple[float, float, float]


def neighbours(first: Site, second: Site, connectivity: int) -> bool:
    """Return whether two voxels share a face, or with 26 neighbours at least a corner."""
    apart = [abs(a - b) for a, b in zip(first, second, strict=True)]
    return sum(apart) == 1 if connectivity == 6 else max(apart) == 1


def pair_weight(first: Site, second: Site, weight: float, spacing: Spacing | None) -> float:
    """Return the Potts weight of two neighbours, which falls with their distance if a spacing is given."""
    if spacing is None:
        return weight
    squares = [(s * (a - b)) ** 2 for a, b, s in zip(first, second, spacing, strict=True)]
    return weight * min(spacing) / sum(squares) ** 0.5


def log_partition(unary: Floats, weight: float, connectivity: int, spacing: Spacing | None) -> float:
    """Return log Z of a Potts model with unaries (D, H, W, L); O(W · L^(2DH))."""
    depth, height, width, n_labels = unary.shape
    slice_sites = list(product(range(depth), range(height)))
    states = np.array(list(product(range(n_labels), repeat=len(slice_sites))))  # (states, sites of a slice)

    def agreement(left: int, right: int) -> Floats:
        """Return the scores of edges between two slices, or inside one, for every pair of states."""
        total = np.zeros((len(states), len(states)))
        for i, (z, y) in enumerate(slice_sites):
            for j, (v, u) in enumerate(slice_sites):
                first, second = (z, y, left), (v, u, right)
                if neighbours(first, second, connectivity) and (left != right or i < j):
                    equal = states[:, i][:, None] == states[:, j][None]
                    total += pair_weight(first, second, weight, spacing) * equal
        return total

    within = np.diagonal(agreement(0, 0))
    between = agreement(0, 1)
    value = np.zeros(len(states))
    for x in range(width):
        own = within + sum(unary[z, y, x][states[:, i]] for i, (z, y) in enumerate(slice_sites))
        value = (np.logaddexp.reduce(value[:, None] + between, axis=0) if x else value) + own
    return float(np.logaddexp.reduce(value))
