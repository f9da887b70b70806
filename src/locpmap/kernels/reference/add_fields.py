"""Unary scores with error fields (`kernels.fields`) on a grid."""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.fields import MEAN, PAIRS, ROWS, VOLUME_ROWS, Fields, Moves
from locpmap.kernels.reference import noise

Ranges = tuple[tuple[int, int], ...]  # first and last coordinate, by axis


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
        where = ((row + down, row + down + height - 1), (column + right, column + right + width - 1))
        values = moves.offsets[n, 0] + interpolated(factors, fields, where, key, first_image + n, first_sample)
        out[n] = unary[n] + values.reshape(-1, unary.shape[2]).astype(unary.dtype)


def clustered(factors: Array, fields: Fields, key: noise.Key, image: int, sample: int) -> Array:
    """Return the sum of the values of every site's clusters, (S, L)."""
    total = np.zeros((fields.clusters.shape[1], factors.shape[1]), np.int64)
    for scale, clusters in enumerate(fields.clusters):
        places = (np.zeros(1, np.int64), np.arange(clusters.max() + 1))
        values = node_noise(key, image, sample, scale, places, len(factors.T))
        total += (factors[scale] * values[0])[clusters]
    return total.astype(np.float32) * np.float32(fields.unit)


def interpolated(factors: Array, fields: Fields, where: Ranges, key: noise.Key, image: int, sample: int) -> Array:
    """Return the sum of the fields at the sites between the first and last coordinate of each axis, (.., L)."""
    values, cell = nodes_of(factors, fields.shift, where, key, image, sample), 1 << fields.shift
    for axis, (first, last) in enumerate(where):
        places = np.arange(first, last + 1)
        node = (places >> fields.shift) - (first >> fields.shift)
        along = (places & (cell - 1)).reshape(-1, *(1,) * (values.ndim - axis - 1))
        values = (cell - along) * values.take(node, axis) + along * values.take(node + 1, axis)
    return values.astype(np.float32) * np.float32(fields.unit)


def nodes_of(factors: Array, shift: int, where: Ranges, key: noise.Key, image: int, sample: int) -> Array:
    """Return the sums of all scales at the nodes of the finest one, (.., L), from coarse to fine."""
    nodes = np.zeros((*(1,) * len(where), factors.shape[1]), np.int64)
    for scale in range(len(factors) - 1, -1, -1):
        level = shift + scale
        places = tuple(np.arange(first >> level, (last >> level) + 2) for first, last in where)
        if scale < len(factors) - 1:
            for axis, place in enumerate(places):
                lower, upper = (place >> 1) - (place[0] >> 1), ((place + 1) >> 1) - (place[0] >> 1)
                nodes = nodes.take(lower, axis) + nodes.take(upper, axis)
            nodes = (nodes + (1 << len(where) >> 1)) >> len(where)
        nodes = nodes + factors[scale] * node_noise(key, image, sample, scale, places, factors.shape[1])
    return nodes


def node_noise(key: noise.Key, image: int, sample: int, scale: int, places: tuple[Array, ...], n_labels: int) -> Array:
    """Return the noise of the nodes of a scale: sums of eight random bytes minus their mean, (.., L)."""
    stride = ROWS if len(places) == 2 else VOLUME_ROWS
    sites, *others = np.ix_(*places)
    for other in others:
        sites = sites * stride + other
    found = []
    for pair in range((n_labels + 1) // 2):
        four = noise.words(key, noise.FIELD, image, sample, sites.ravel(), scale * PAIRS + pair)
        sums = np.sum([four >> np.uint64(bits) & np.uint64(255) for bits in (0, 8, 16, 24)], axis=0).astype(np.int64)
        found += [sums[0] + sums[1] - MEAN, sums[2] + sums[3] - MEAN]
    return np.stack(found[:n_labels], axis=-1).reshape(*sites.shape, n_labels)
