"""The permutohedral lattice of Adams, Baek and Davis (2010), on which a Gaussian filter is a few short sums.

Features (d,) are mapped to the plane of R^(d + 1) where coordinates sum to 0.  The lattice divides this plane into
simplices.  The directions ``u_j = (1, .., 1) - (d + 1) e_j``, which sum to 0, lead from a point to its neighbours.  The
first vertex of a pixel's simplex is a multiple of d + 1.  Each other vertex is one direction from the vertex before it.

A point Σ c_j u_j has the key Σ c_j r_j modulo 2^64, where the ``directions`` r_j are random integers that sum to 0.
Different points have different keys, except with probability 2^-64 per pair of points.
"""

import numpy as np

from locpmap.arrays import Array


def lattice(features: Array, directions: Array, points: Array, weights: Array) -> Array:
    """Fill ``points`` and ``weights`` (N, d + 1): the vertices of each pixel's simplex and their barycentric weights.

    ``features`` (N, d) are float32, in units of the filter's standard deviation.  Points are numbered in order of
    appearance.  Return the neighbours (d + 1, M, 2) of the points, along and against each direction; -1: no such point.
    """
    n = len(directions)
    x = np.zeros((len(features), n), np.float32)  # in units of d + 1
    for j in range(n - 1, 0, -1):
        part = features[:, j - 1] * np.float32(np.sqrt(2 / (3 * j * (j + 1))))
        x[:, j] = x[:, 0] - j * part
        x[:, 0] += part
    corner = np.floor(x + np.float32(0.5)).astype(np.int64)
    x -= corner
    rank = np.argsort(np.argsort(-x, axis=1, kind="stable"), axis=1) + corner.sum(1, keepdims=True)
    turn = (rank < 0).astype(np.int64) - (rank >= n)  # move the corner to the plane where coordinates sum to 0
    x -= turn
    ascending = np.argsort(-(rank + turn * n), axis=1)
    x = np.take_along_axis(x, ascending, axis=1)
    weights[:] = np.diff(x, axis=1, prepend=x[:, -1:] - 1)
    first = -((corner + turn) * directions).sum(1, keepdims=True)
    keys = np.cumsum(np.hstack([first, directions[ascending[:, :-1]]]), axis=1)
    known, seen, places = np.unique(keys, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(seen))
    points[:] = number[places].reshape(points.shape)
    others = known[np.argsort(number)][:, None] + np.stack([directions, -directions], -1)[:, None]
    places = np.searchsorted(known, others).clip(max=len(known) - 1)
    return np.where(known[places] == others, number[places], -1)
