"""Numba version of `reference.add_fields`, with the nodes of the fields for one sample (`nodes_of`)."""

import numpy as np

from locpmap.kernels.fields import MEAN, PAIRS, ROWS
from locpmap.kernels.numba.compiling import allocating, inlined, inner, kernel
from locpmap.kernels.numba.noise import site_words
from locpmap.kernels.reference.noise import FIELD

_MEAN = np.int32(MEAN)
_EVEN = np.uint32(0x00FF00FF)


@kernel
def add_fields(unary, window, fields, moves, key, first_image, first_sample, out):
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample."""
    height, width, row, column = window
    n_labels, shift, unit = unary.shape[2], fields.shift, np.float32(fields.unit)
    for n in range(len(unary)):
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        top, left = row + moves.phases[n, 0, 0], column + moves.phases[n, 0, 1]
        nodes = nodes_of(factors, shift, top, left, height, width, key, first_image + n, first_sample)
        offsets = moves.offsets[n, 0]
        for r in range(height):
            for c in range(width):
                i = r * width + c
                for k in range(n_labels):
                    value = np.float32(interpolate(nodes[k], r, c, shift, top, left)) * unit
                    out[n, i, k] = unary[n, i, k] + (offsets[k] + value)


@inlined
def interpolate(nodes, r, c, shift, top, left):
    """Interpolate a label's field in row r and column c between its nodes; return cell² times the value."""
    cell = np.int32(1 << shift)
    y, down = ((top + r) >> shift) - (top >> shift), np.int32((top + r) & (cell - 1))
    x, along = ((left + c) >> shift) - (left >> shift), np.int32((left + c) & (cell - 1))
    upper = (cell - along) * nodes[y, x] + along * nodes[y, x + 1]
    lower = (cell - along) * nodes[y + 1, x] + along * nodes[y + 1, x + 1]
    return (cell - down) * upper + down * lower


@allocating
def nodes_of(factors, shift, top, left, height, width, key, image, sample):
    """Return the sums of all scales at the nodes of the finest one, (L, rows, columns) int32, from coarse to fine."""
    n_scales, n_labels = factors.shape
    bottom, right = top + height - 1, left + width - 1
    level = shift + n_scales
    nodes = np.zeros(
        (n_labels, (bottom >> level) - (top >> level) + 2, (right >> level) - (left >> level) + 2), np.int32
    )
    for scale in range(n_scales - 1, -1, -1):
        level -= 1
        y0, x0 = top >> level, left >> level
        rows, columns = (bottom >> level) - y0 + 2, (right >> level) - x0 + 2
        finer = np.empty((n_labels, rows, columns), np.int32)
        for k in range(n_labels):
            halve(nodes[k], finer[k], y0, x0)
        for first in range(0, n_labels, 2):
            last = min(first + 1, n_labels - 1)
            if factors[scale, first] or factors[scale, last]:
                add_noise(finer, factors[scale], first, last, scale, y0, x0, key, image, sample)
        nodes = finer
    return nodes


@inner
def halve(nodes, finer, y0, x0):
    """Interpolate the nodes of cells at the nodes of cells of half the size."""
    odd = x0 & 1
    for a in range(finer.shape[0]):
        upper, lower = nodes[(y0 + a >> 1) - (y0 >> 1)], nodes[(y0 + a + 1 >> 1) - (y0 >> 1)]
        row, count = finer[a], finer.shape[1]
        if odd:
            row[0] = (upper[0] + upper[1] + lower[0] + lower[1] + 2) >> 2
        for b in range((count - odd) >> 1):
            left, right = upper[odd + b] + lower[odd + b], upper[odd + b + 1] + lower[odd + b + 1]
            row[odd + 2 * b] = (2 * left + 2) >> 2
            row[odd + 2 * b + 1] = (left + right + 2) >> 2
        if (count - odd) & 1:
            last = odd + (count - odd >> 1)
            row[count - 1] = (2 * (upper[last] + lower[last]) + 2) >> 2


@inner
def add_noise(nodes, factors, first, last, scale, y0, x0, key, image, sample):
    """Add the noise of one scale to the nodes of two labels, which share calls of Philox."""
    group, k0, k1 = scale * PAIRS + first // 2, key[0], key[1]
    factor, other = factors[first], factors[last] if last != first else np.int32(0)
    for a in range(nodes.shape[1]):
        site0 = np.int64(y0 + a) * ROWS + x0
        mine, others = nodes[first, a], nodes[last, a]
        for b in range(len(mine)):
            w0, w1, w2, w3 = site_words(k0, k1, FIELD, image, sample, site0 + b, group)
            mine[b] += factor * (byte_sum(w0, w1) - _MEAN)
            others[b] += other * (byte_sum(w2, w3) - _MEAN)


@inlined
def byte_sum(v, w):
    """Return the sum of the eight bytes of two words."""
    halves = (v & _EVEN) + ((v >> np.uint32(8)) & _EVEN) + (w & _EVEN) + ((w >> np.uint32(8)) & _EVEN)
    return np.int32((halves & np.uint32(0xFFFF)) + (halves >> np.uint32(16)))
