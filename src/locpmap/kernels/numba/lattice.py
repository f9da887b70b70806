"""Numba version of `reference.lattice`.  Keys are found in a hash table that doubles when half full."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel


@kernel
def lattice(features, directions, points, weights):
    """Fill ``points`` and ``weights`` (N, d + 1); return neighbours (d + 1, M, 2).  O(d²) per pixel."""
    n = len(directions)
    x, corner, rank, order = (
        np.empty(n, np.float32),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )
    seen = np.zeros(n, np.int64)  # keys of the pixel before
    scale = np.empty(n, np.float32)
    for j in range(1, n):
        scale[j] = math.sqrt(2 / (3.0 * j * (j + 1)))
    bits, n_points = 12, 0
    table, keys = np.full(1 << bits, -1, np.int32), np.empty(1 << (bits - 1), np.int64)
    for p in range(len(features)):
        x[0] = 0
        for j in range(n - 1, 0, -1):
            part = features[p, j - 1] * scale[j]
            x[j] = x[0] - np.float32(j) * part
            x[0] += part
        excess = 0
        for j in range(n):
            corner[j] = math.floor(x[j] + np.float32(0.5))
            excess += corner[j]
            x[j] -= corner[j]
            rank[j] = 0
        for i in range(n):
            for j in range(i + 1, n):
                after = x[i] < x[j]
                rank[i] += after
                rank[j] += not after
        key = 0
        for j in range(n):
            place = rank[j] + excess
            turn = (place < 0) - (place >= n)  # keep the corner on the plane where coordinates sum to 0
            order[place + turn * n] = j
            x[j] -= turn
            key -= (corner[j] + turn) * directions[j]
        for k in range(n):
            if k:
                key += directions[order[n - k]]
            weights[p, k] = x[order[n - 1 - k]] - (x[order[n - k]] if k else x[order[0]] - 1)
            if p and key == seen[k]:
                points[p, k] = points[p - 1, k]
                continue
            seen[k] = key
            slot = find(table, keys, key, bits)
            if table[slot] < 0:
                if n_points == len(keys):
                    bits += 1
                    fewer, keys = keys, np.empty(1 << (bits - 1), np.int64)
                    table = np.full(1 << bits, -1, np.int32)
                    for q in range(n_points):
                        keys[q] = fewer[q]
                        table[find(table, keys, keys[q], bits)] = q
                    slot = find(table, keys, key, bits)
                table[slot], keys[n_points] = n_points, key
                n_points += 1
            points[p, k] = table[slot]
    near = np.empty((n, n_points, 2), np.int32)
    for j in range(n):
        for q in range(n_points):
            near[j, q, 0] = table[find(table, keys, keys[q] + directions[j], bits)]
            near[j, q, 1] = table[find(table, keys, keys[q] - directions[j], bits)]
    return near


@inner
def find(table, keys, key, bits):
    """Return the slot of a key, or the empty slot where it belongs."""
    slot = np.int64(np.uint64(key) >> np.uint64(64 - bits))
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & ((1 << bits) - 1)
    return slot
