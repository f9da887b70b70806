"""Unary scores with error fields (`kernels.fields`) on a grid."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.fields import MEAN, PAIRS, ROWS, Fields, Moves
from locpmap.kernels.reference import noise


def add_fields(
    unary: Array,
    window: tuple[int, int, int, int],
    fields: Fields,
    moves: Moves,
    key: noise.Key,
    first_image: int,
    first_sample: int,
    out: Array,
) -> None:
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample, the only one in ``moves``.

    ``window`` is the height, the width, and the row and column of the upper left site in the whole grid; it is unused
    with clusters.  ``first_image`` and ``first_sample`` are the numbers of image 0 and of the sample in the noise.
    """
    height, width, row, column = window
    for n in range(len(unary)):
        factors = fields.factors[n if len(fields.factors) > 1 else 0]
        if not factors.any():
            out[n] = unary[n] + moves.offsets[n, 0]
            continue
        if fields.clusters.size:
            values = moves.offsets[n, 0] + clustered(factors, fields, key, first_image + n, first_sample)
            out[n] = unary[n] + values.astype(unary.dtype)
            continue
        down, right = (int(phase) for phase in moves.phases[n, 0])
        where = (row + down, row + down + height - 1, column + right, column + right + width - 1)
        values = moves.offsets[n, 0] + interpolated(factors, fields, where, key, first_image + n, first_sample)
        out[n] = unary[n] + values.reshape(-1, unary.shape[2]).astype(unary.dtype)


def clustered(factors: Array, fields: Fields, key: noise.Key, image: int, sample: int) -> Array:
    """Return the sum of the values of every site's clusters, (S, L)."""
    total = np.zeros((fields.clusters.shape[1], factors.shape[1]), np.int64)
    for scale, clusters in enumerate(fields.clusters):
        values = node_noise(
            key, image, sample, scale, np.zeros(1, np.int64), np.arange(clusters.max() + 1), len(factors.T)
        )
        total += (factors[scale] * values[0])[clusters]
    return total.astype(np.float32) * np.float32(fields.unit)


def interpolated(
    factors: Array, fields: Fields, where: tuple[int, int, int, int], key: noise.Key, image: int, sample: int
) -> Array:
    """Return the sum of the fields at rows top..bottom and columns left..right (inclusive), (H, W, L)."""
    top, bottom, left, right = where
    rows, columns = np.arange(top, bottom + 1), np.arange(left, right + 1)
    nodes = nodes_of(factors, fields.shift, where, key, image, sample)
    cell = 1 << fields.shift
    y, x = (rows >> fields.shift) - (top >> fields.shift), (columns >> fields.shift) - (left >> fields.shift)
    down, along = (rows & (cell - 1))[:, None, None], (columns & (cell - 1))[None, :, None]
    upper = (cell - along) * nodes[y][:, x] + along * nodes[y][:, x + 1]
    lower = (cell - along) * nodes[y + 1][:, x] + along * nodes[y + 1][:, x + 1]
    return ((cell - down) * upper + down * lower).astype(np.float32) * np.float32(fields.unit)


def nodes_of(
    factors: Array, shift: int, where: tuple[int, int, int, int], key: noise.Key, image: int, sample: int
) -> Array:
    """Return the sums of all scales at the nodes of the finest one, (rows, columns, L), from coarse to fine."""
    top, bottom, left, right = where
    nodes = np.zeros((1, 1, factors.shape[1]), np.int64)
    for scale in range(len(factors) - 1, -1, -1):
        level = shift + scale
        y, x = np.arange(top >> level, (bottom >> level) + 2), np.arange(left >> level, (right >> level) + 2)
        if scale < len(factors) - 1:
            (y0, y1), (x0, x1) = ((i >> 1, (i + 1) >> 1) for i in (y, x))
            y0, y1, x0, x1 = y0 - y0[0], y1 - y0[0], x0 - x0[0], x1 - x0[0]
            four = nodes[y0][:, x0] + nodes[y0][:, x1] + nodes[y1][:, x0] + nodes[y1][:, x1]
            nodes = (four + 2) >> 2
        nodes = nodes + factors[scale] * node_noise(key, image, sample, scale, y, x, factors.shape[1])
    return nodes


def node_noise(key: noise.Key, image: int, sample: int, scale: int, y: Array, x: Array, n_labels: int) -> Array:
    """Return the noise of the nodes of a scale: sums of eight random bytes minus their mean, (rows, columns, L)."""
    sites = (y[:, None].astype(np.int64) * ROWS + x[None]).ravel()
    found = []
    for pair in range((n_labels + 1) // 2):
        four = noise.words(key, noise.FIELD, image, sample, sites, scale * PAIRS + pair)
        sums = np.sum([four >> np.uint64(bits) & np.uint64(255) for bits in (0, 8, 16, 24)], axis=0).astype(np.int64)
        found += [sums[0] + sums[1] - MEAN, sums[2] + sums[3] - MEAN]
    return np.stack(found[:n_labels], axis=-1).reshape(len(y), len(x), n_labels)
