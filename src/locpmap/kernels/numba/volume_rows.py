"""Rows of a volume: neighbours and weights of their sites, and exponentials of their scores."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner
from locpmap.kernels.numba.field_rows import exp

MOST_STEPS = 13


def with_all_steps(links):
    """Repeat the first step up to 13 steps, so that one compiled kernel serves all volumes; `link_row` skips these."""
    more = MOST_STEPS - len(links.steps)
    return links._replace(steps=links.steps + links.steps[:1] * more, weights=links.weights + links.weights[:1] * more)


def row_arrays(links):
    """Allocate the arrays of `link_row`."""
    n_slots, width = 2 * len(links.steps), links.shape[2]
    return np.zeros((4, n_slots), np.int64), np.empty((width, n_slots)), np.empty(width), np.full(2, -1, np.int64)


@inner
def link_row(neighbours, links, n, z, y, powers):
    """Fill the neighbours of the sites in row (z, y) of image n; return their number and a bound of the weights' sum.

    ``offset[case]`` leads from a site to its neighbours: case 0 inside the row, bit 0 in its first column, bit 1 in
    its last one.  A missing neighbour has offset 0 and weight 0.  ``whole`` is the sum of a
    site's weights.  ``powers`` replaces the weights by their exponentials.  A row with the neighbours and weights of
    the row before is not filled again.
    """
    offset, weight, whole, known = neighbours
    depth, height, width = links.shape
    n_steps = offset.shape[1] // 2
    key = ((z == 0) + 2 * (z == depth - 1) + 4 * (y == 0) + 8 * (y == height - 1)) * 2 + powers
    for d in range(n_steps):
        key = -1 if links.weights[d].size > 1 else key
    if key >= 0 and known[0] == key:
        return known[1], whole[0]
    count, bound = 0, 0.0
    whole[:] = 0.0
    for d in range(n_steps):
        dz, dy, dx = links.steps[d]
        mine = links.weights[d][n if len(links.weights[d]) > 1 else 0]
        for sign in (1, -1):
            sz, sy, sx = sign * dz, sign * dy, sign * dx
            if not (0 <= z + sz < depth and 0 <= y + sy < height and abs(sx) < width):
                continue
            begin, stop = max(0, -sx), width - max(0, sx)
            above, back = (0, 0) if sign > 0 else (sz, sy)  # from the site to the first end of the edge
            row = (z + above - max(0, -dz)) * (height - abs(dy)) + y + back - max(0, -dy)
            at, along = (0, 0) if len(mine) == 1 else (row * (width - abs(dx)), 1)
            most = 0.0
            for x in range(width):
                value = np.float64(mine[at + (x - begin) * along]) if begin <= x < stop else 0.0
                most = max(most, abs(value))
                whole[x] += value
                weight[x, count] = value
            if powers and along == 0:
                value = math.exp(most if mine[at] > 0 else -most)
                for x in range(width):
                    weight[x, count] = value if begin <= x < stop else 1.0
            elif powers:
                for x in range(width):
                    whole[x] = weight[x, count]
                for x in range(width):
                    whole[x] = exp(whole[x])  # contiguous, so that the loop vectorises
                for x in range(width):
                    weight[x, count] = whole[x]
            bound += most
            step = (sz * height + sy) * width + sx
            offset[0, count] = step
            offset[1, count] = step if begin == 0 else 0
            offset[2, count] = step if stop == width else 0
            offset[3, count] = step if begin == 0 and stop == width else 0
            count += 1
    known[0], known[1] = key, count
    if powers:
        whole[:] = bound
    return count, bound


@inner
def weigh_row(powers, top, unary, begin):
    """Fill ``exp(score - top)`` of every label in a row, (L, W), and the largest scores ``top`` (W,)."""
    width = len(top)
    top[:] = -np.inf
    for k in range(len(powers)):
        mine = powers[k]
        for x in range(width):
            mine[x] = unary[begin + x, k]
        for x in range(width):
            top[x] = max(mine[x], top[x])
    for k in range(len(powers)):
        mine = powers[k]
        for x in range(width):
            mine[x] = exp(mine[x] - top[x])
