"""Error fields (`kernels.fields`): the nodes of all samples, and unaries with the fields of one sample.

A *pair* is an image with a sample; pairs are numbered sample by sample, image after image.  The nodes of a scale are an
array (n, R, L, rows, columns), on a volume with planes before the rows.  The phase of a pair decides which cells the
window touches, so rows and columns are sufficient for every phase, and the last ones may be unused.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels import fields as definition
from locpmap.kernels.fields import Fields, Moves
from locpmap.kernels.model import Array, GridWindow, VolumeWindow
from locpmap.kernels.triton.grid_barrier import BARRIER, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.philox import FIELD, Draw, words

NODES, ITEMS = tl.constexpr(256), 1024  # lanes per program
MEAN = tl.constexpr(definition.MEAN)
PAIRS, ROWS = tl.constexpr(definition.PAIRS), tl.constexpr(definition.ROWS)
VOLUME_ROWS = tl.constexpr(definition.VOLUME_ROWS)


class Terms(NamedTuple):
    """Terms that the samples of n images add to the unaries, in the form that kernels take."""

    nodes: Any  # (n, R, L, rows, columns) int32 sums of all scales; behind them, those of the coarser scales
    offsets: Any  # (n, R, L) in the dtype of the unaries
    phases: Any  # (n, R, 2) int32; (n, R, 3) on a volume
    planes: int | None  # of nodes; None on a grid
    rows: int
    columns: int
    shift: int
    unit: float
    plane: int  # of the window's first site in the whole grid or volume
    row: int
    column: int
    depth: int  # of the window
    height: int
    width: int
    n_samples: int


class Corners(NamedTuple):
    """The cell of each lane: its upper left node, and the weights of its four nodes, whose sum is cell².

    On a volume, these are the nodes of the front plane.
    """

    node: Any
    upper_left: Any
    upper_right: Any
    lower_left: Any
    lower_right: Any
    back: Any  # weight of the back plane of a cell, of which the front plane has the rest


def terms_of(fields: Fields, moves: Moves, window: GridWindow | VolumeWindow, draw: Draw, like: Array) -> Terms:
    """Return the terms of images and samples from ``draw.first_image`` and ``draw.first_sample`` on.

    Their offsets have the device and the dtype of ``like``.
    """
    device = like.device
    own = moves.offsets.astype(np.float32 if like.dtype == torch.float32 else np.float64)
    parts = [part.reshape(-1).view(np.int32) for part in (own, moves.phases, fields.factors)]
    # One copy for all of them, since a copy takes as long as a launch; rows are aligned as Triton's kernels expect.
    packed = np.zeros((3, -(-max(map(len, parts)) // 4) * 4), np.int32)
    for row, part in zip(packed, parts, strict=True):
        row[: len(part)] = part
    offsets, phases, factors = torch.from_numpy(packed).to(device, non_blocking=True)
    (n_images, n_samples, n_labels), n_scales = moves.offsets.shape, fields.factors.shape[1]
    apart = n_scales * n_labels if len(fields.factors) > 1 else 0
    if deep := isinstance(window, VolumeWindow):
        corner, shape = window.corner, window.shape
    else:
        corner, shape = (0, window.row, window.column), (1, window.height, window.width)  # one plane
    sides = [[((side - 1) >> (fields.shift + j)) + 3 for side in shape[not deep :]] for j in range(n_scales)]
    n_nodes = n_images * n_samples * n_labels * sum(map(math.prod, sides))
    nodes = torch.empty(n_nodes, dtype=torch.int32, device=device)
    finest = sides[0] if sides else [0] * 3
    given = (nodes, offsets.view(like.dtype), phases, finest[0] if deep else None, finest[-2], finest[-1])
    terms = Terms(*given, fields.shift, fields.unit, *corner, *shape, n_samples)
    if n_scales:
        notes = torch.zeros(BARRIER.value, dtype=torch.int32, device=device)
        n_tiles = n_images * n_samples * triton.cdiv((n_labels + 1) // 2 * math.prod(sides[0]), NODES.value)
        programs = (min(n_tiles, resident_programs(device)),)
        arrays = (terms, n_nodes, (factors, apart), *draw, n_images * n_samples, notes)
        _add_scales[programs](*arrays, n_labels, n_scales, **at_once())
    return terms


def add_fields(unary: Array, terms: Terms, out: Array) -> None:
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample."""
    n_images, n_sites, n_labels = unary.shape
    grid = (n_images * triton.cdiv(n_sites * n_labels, ITEMS),)
    _add_fields[grid](unary, out, terms, n_sites, n_labels, terms.rows > 0, ITEMS)


@triton.jit(do_not_specialize=[*Draw._fields, "n_pairs", "n_nodes"])
def _add_scales(
    terms,
    n_nodes,
    factors,
    k0: tl.uint32,
    k1: tl.uint32,
    first_image,
    first_sample,
    n_pairs,
    notes,
    N_LABELS: tl.constexpr,
    N_SCALES: tl.constexpr,
):
    """Fill the nodes of all scales, the coarsest first: the interpolated nodes of the coarser scale plus noise."""
    factors_ptr, factors_apart = factors
    scale, turn = N_SCALES - 1, 1
    coarse_rows, coarse_columns, coarse_size, coarse_ptr = 0, 0, 0, terms.nodes + tl.cast(n_nodes, tl.int64)
    while scale >= 0:
        level = terms.shift + scale
        rows, columns = ((terms.height - 1) >> level) + 3, ((terms.width - 1) >> level) + 3
        size = rows * columns
        if terms.planes is not None:
            size *= ((terms.depth - 1) >> level) + 3
        nodes_ptr = coarse_ptr - tl.cast(n_pairs, tl.int64) * N_LABELS * size
        n_items = tl.cast(size, tl.int64) * ((N_LABELS + 1) // 2)  # two labels share a Philox call
        n_tiles = tl.cdiv(n_items, NODES)
        tile = tl.program_id(0).to(tl.int64)
        while tile < n_pairs * n_tiles:
            pair = tile // n_tiles
            item = tile % n_tiles * NODES + tl.arange(0, NODES)
            two = item // size
            node = (item - two * size).to(tl.int32)
            n, sample = pair // terms.n_samples, first_sample + pair % terms.n_samples
            phases = _phases_of(terms, pair)
            y0, x0 = (terms.row + tl.load(phases)) >> level, (terms.column + tl.load(phases + 1)) >> level
            y = node // columns
            x = node - y * columns
            if terms.planes is None:
                site = (y0 + y).to(tl.int64) * ROWS + x0 + x
            else:
                z = y // rows
                y -= z * rows
                z0 = (terms.plane + tl.load(phases + 2)) >> level
                site = ((z0 + z).to(tl.int64) * VOLUME_ROWS + y0 + y) * VOLUME_ROWS + x0 + x
            w0, w1, w2, w3 = words(k0, k1, FIELD, first_image + n, sample, site, scale * PAIRS + two)
            upper, lower = ((y0 + y) >> 1) - (y0 >> 1), ((y0 + y + 1) >> 1) - (y0 >> 1)
            left, right = ((x0 + x) >> 1) - (x0 >> 1), ((x0 + x + 1) >> 1) - (x0 >> 1)
            for j in tl.static_range(2):
                k = 2 * two + j
                there = (item < n_items) & (k < N_LABELS)
                factor = tl.load(factors_ptr + n * factors_apart + scale * N_LABELS + k, mask=there, other=0)
                value = factor * ((byte_sum(w0, w1) if j == 0 else byte_sum(w2, w3)) - MEAN)
                if scale < N_SCALES - 1:
                    plane = coarse_ptr + (pair * N_LABELS + k) * coarse_size
                    above, below = upper * coarse_columns, lower * coarse_columns
                    if terms.planes is None:
                        value += (_four(plane, above, below, left, right, there) + 2) >> 2
                    else:
                        apart = coarse_rows * coarse_columns
                        near, far = ((z0 + z) >> 1) - (z0 >> 1), ((z0 + z + 1) >> 1) - (z0 >> 1)
                        eight = _four(plane + near * apart, above, below, left, right, there)
                        eight += _four(plane + far * apart, above, below, left, right, there)
                        value += (eight + 4) >> 3
                tl.store(nodes_ptr + (pair * N_LABELS + k) * size + node, value, mask=there)
            tile += tl.num_programs(0)
        if scale > 0:
            wait_for_all(notes, turn, tl.num_programs(0))
        coarse_rows, coarse_columns, coarse_size, coarse_ptr = rows, columns, size, nodes_ptr
        scale, turn = scale - 1, turn + 1


@triton.jit
def _phases_of(terms, pair):
    """Return a pointer to the phases of a pair: rows, columns and, on a volume, planes."""
    return terms.phases + (2 if terms.planes is None else 3) * pair


@triton.jit
def _four(plane, above, below, left, right, mask):
    """Return the sum of four nodes, which other programs may have stored: the L1 cache may hold older ones."""
    total = tl.load(plane + above + left, mask=mask, other=0, cache_modifier=".cg")
    total += tl.load(plane + above + right, mask=mask, other=0, cache_modifier=".cg")
    total += tl.load(plane + below + left, mask=mask, other=0, cache_modifier=".cg")
    return total + tl.load(plane + below + right, mask=mask, other=0, cache_modifier=".cg")


@triton.jit
def byte_sum(v, w):
    """Return the sum of the eight bytes of two words."""
    halves = (v & 0x00FF00FF) + ((v >> 8) & 0x00FF00FF) + (w & 0x00FF00FF) + ((w >> 8) & 0x00FF00FF)
    return ((halves & 0xFFFF) + (halves >> 16)).to(tl.int32)


@triton.jit
def corners_of(terms, pair, row, column):
    """Return the cells of lanes in rows and columns of the window; rows of a volume are those of all planes."""
    phases = _phases_of(terms, pair)
    top, left = terms.row + tl.load(phases), terms.column + tl.load(phases + 1)
    cell = 1 << terms.shift
    deep, back = row * 0, row * 0
    if terms.planes is not None:
        z = row // terms.height
        row -= z * terms.height
        front = terms.plane + tl.load(phases + 2)
        deep, back = ((front + z) >> terms.shift) - (front >> terms.shift), (front + z) & (cell - 1)
    y, x = ((top + row) >> terms.shift) - (top >> terms.shift), ((left + column) >> terms.shift) - (left >> terms.shift)
    down, along = (top + row) & (cell - 1), (left + column) & (cell - 1)
    upper, lower = cell - down, down
    weights = (upper * (cell - along), upper * along, lower * (cell - along), lower * along)
    node = (deep * terms.rows + y) * terms.columns + x
    return Corners(node, weights[0], weights[1], weights[2], weights[3], back)


@triton.jit
def move_of(terms, pair, k, corners, N_LABELS: tl.constexpr, SCALES: tl.constexpr):
    """Return the terms that a pair adds to the scores of label k, a scalar or block: offset and interpolated nodes."""
    move = tl.load(terms.offsets + pair * N_LABELS + k)
    if SCALES:
        size = terms.rows * terms.columns
        if terms.planes is None:
            value = _within(terms.nodes + (pair * N_LABELS + k) * size + corners.node, corners, terms.columns)
        else:
            node = terms.nodes + (pair * N_LABELS + k) * (terms.planes * size) + corners.node
            value = ((1 << terms.shift) - corners.back) * _within(node, corners, terms.columns)
            value += corners.back * _within(node + size, corners, terms.columns)
        move += value.to(tl.float32) * tl.cast(terms.unit, tl.float32)
    return move


@triton.jit
def _within(node, corners, columns):
    """Return the weighted sum of four nodes of a cell; ``node`` points to the upper left one."""
    value = corners.upper_left * tl.load(node) + corners.upper_right * tl.load(node + 1)
    node += columns
    return value + corners.lower_left * tl.load(node) + corners.lower_right * tl.load(node + 1)


@triton.jit
def _add_fields(unary_ptr, out_ptr, terms, n_sites, N_LABELS: tl.constexpr, SCALES: tl.constexpr, ITEMS: tl.constexpr):
    n_items = tl.cast(n_sites, tl.int64) * N_LABELS
    n_tiles = tl.cdiv(n_items, ITEMS)
    n = tl.program_id(0) // n_tiles
    item = tl.minimum(tl.program_id(0) % n_tiles * ITEMS + tl.arange(0, ITEMS), n_items - 1)
    site = (item // N_LABELS).to(tl.int32)
    row = site // terms.width
    corners = corners_of(terms, n, row, site - row * terms.width)
    move = move_of(terms, n, item % N_LABELS, corners, N_LABELS, SCALES)
    tl.store(out_ptr + n * n_items + item, tl.load(unary_ptr + n * n_items + item) + move)
