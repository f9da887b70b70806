"""Numba version of `reference.add_volume_fields`."""

import numpy as np

from locpmap.kernels.fields import MEAN, PAIRS, VOLUME_ROWS
from locpmap.kernels.numba.add_fields import byte_sum
from locpmap.kernels.numba.compiling import allocating, inner, kernel
from locpmap.kernels.numba.noise import site_words
from locpmap.kernels.reference.noise import FIELD

_MEAN = np.int32(MEAN)


@kernel
def add_volume_fields(unary, window, fields, moves, key, first_image, first_sample, out):
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample, row by row."""
    depth, height, width = window.shape
    n_labels, shift, unit = unary.shape[2], fields.shift, np.float32(fields.unit)
    cell = np.int32(1 << shift)
    for n in range(len(unary)):
        factors, offsets = fields.factors[n if len(fields.factors) > 1 else 0], moves.offsets[n, 0]
        front = window.corner[0] + moves.phases[n, 0, 2]
        top, left = window.corner[1] + moves.phases[n, 0, 0], window.corner[2] + moves.phases[n, 0, 1]
        ends = (front, front + depth - 1, top, top + height - 1, left, left + width - 1)
        nodes = volume_nodes(factors, shift, ends, key, first_image + n, first_sample)
        row = np.empty(nodes.shape[3], np.int32)  # interpolated between planes and rows of nodes
        for z in range(depth):
            a, back = ((front + z) >> shift) - (front >> shift), np.int32((front + z) & (cell - 1))
            for y in range(height):
                b, down = ((top + y) >> shift) - (top >> shift), np.int32((top + y) & (cell - 1))
                begin = (z * height + y) * width
                for k in range(n_labels):
                    four = nodes[k, a : a + 2, b : b + 2]
                    for c in range(len(row)):
                        near = (cell - down) * four[0, 0, c] + down * four[0, 1, c]
                        far = (cell - down) * four[1, 0, c] + down * four[1, 1, c]
                        row[c] = (cell - back) * near + back * far
                    for x in range(width):
                        c, along = ((left + x) >> shift) - (left >> shift), np.int32((left + x) & (cell - 1))
                        value = np.float32((cell - along) * row[c] + along * row[c + 1]) * unit
                        out[n, begin + x, k] = unary[n, begin + x, k] + (offsets[k] + value)


@allocating
def volume_nodes(factors, shift, ends, key, image, sample):
    """Return the sums of all scales at the nodes of the finest one, (L, planes, rows, columns) int32."""
    n_scales, n_labels = factors.shape
    front, back, top, bottom, left, right = ends
    level = shift + max(n_scales - 1, 0)
    nodes = np.zeros((n_labels, *nodes_along(front, back, top, bottom, left, right, level)), np.int32)
    for scale in range(n_scales - 1, -1, -1):
        level = shift + scale
        start = (front >> level, top >> level, left >> level)
        if scale < n_scales - 1:
            finer = np.empty((n_labels, *nodes_along(front, back, top, bottom, left, right, level)), np.int32)
            for k in range(n_labels):
                halve_cubes(nodes[k], finer[k], start)
            nodes = finer
        for first in range(0, n_labels, 2):
            last = min(first + 1, n_labels - 1)
            if factors[scale, first] or factors[scale, last]:
                add_cube_noise(nodes, factors[scale], first, last, scale, start, key, image, sample)
    return nodes


@inner
def nodes_along(front, back, top, bottom, left, right, level):
    """Return the numbers of nodes of a scale along each axis."""
    planes, rows = (back >> level) - (front >> level) + 2, (bottom >> level) - (top >> level) + 2
    return planes, rows, (right >> level) - (left >> level) + 2


@inner
def halve_cubes(nodes, finer, start):
    """Interpolate the nodes of cells at the nodes of cells of half the size."""
    z0, y0, x0 = start
    for a in range(finer.shape[0]):
        near, far = (z0 + a >> 1) - (z0 >> 1), (z0 + a + 1 >> 1) - (z0 >> 1)
        for b in range(finer.shape[1]):
            upper, lower = (y0 + b >> 1) - (y0 >> 1), (y0 + b + 1 >> 1) - (y0 >> 1)
            for c in range(finer.shape[2]):
                left, right = (x0 + c >> 1) - (x0 >> 1), (x0 + c + 1 >> 1) - (x0 >> 1)
                eight = nodes[near, upper, left] + nodes[near, upper, right]
                eight += nodes[near, lower, left] + nodes[near, lower, right]
                eight += nodes[far, upper, left] + nodes[far, upper, right]
                eight += nodes[far, lower, left] + nodes[far, lower, right]
                finer[a, b, c] = (eight + 4) >> 3


@inner
def add_cube_noise(nodes, factors, first, last, scale, start, key, image, sample):
    """Add the noise of one scale to the nodes of two labels, which share calls of Philox."""
    group = scale * PAIRS + first // 2
    for a in range(nodes.shape[1]):
        for b in range(nodes.shape[2]):
            for c in range(nodes.shape[3]):
                site = (np.int64(start[0] + a) * VOLUME_ROWS + start[1] + b) * VOLUME_ROWS + start[2] + c
                w0, w1, w2, w3 = site_words(key[0], key[1], FIELD, image, sample, site, group)
                nodes[first, a, b, c] += factors[first] * (byte_sum(w0, w1) - _MEAN)
                if last != first:
                    nodes[last, a, b, c] += factors[last] * (byte_sum(w2, w3) - _MEAN)
