"""Error fields (`kernels.fields`) on a grid: the nodes of all samples, and unaries with the fields of one sample.

A *pair* is an image with a sample; pairs are numbered sample by sample, image after image.  The nodes of a scale are an
array (n, R, L, rows, columns).  The phase of a pair decides which cells the window touches, so rows and columns are
sufficient for every phase, and the last ones may be unused.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from locpmap.kernels import fields as definition
from locpmap.kernels.fields import Fields, Moves
from locpmap.kernels.model import Array, GridWindow
from locpmap.kernels.triton.climb.potts_grid import Draw
from locpmap.kernels.triton.grid_barrier import BARRIER, at_once, resident_programs, wait_for_all
from locpmap.kernels.triton.philox import FIELD, words

NODES, ITEMS = 256, 1024  # lanes per program
MEAN = tl.constexpr(definition.MEAN)
PAIRS, ROWS = tl.constexpr(definition.PAIRS), tl.constexpr(definition.ROWS)


class Terms(NamedTuple):
    """What the samples of n images add to the unaries, in the form that kernels take."""

    nodes: Any  # (n, R, L, rows, columns) int32 sums of all scales; behind them, those of the coarser scales
    offsets: Any  # (n, R, L) in the dtype of the unaries
    phases: Any  # (n, R, 2) int32
    rows: int
    columns: int
    shift: int
    unit: float
    row: int  # of the window's upper left corner in the whole grid
    column: int
    width: int  # of the window
    n_samples: int


class Corners(NamedTuple):
    """The cell of each lane: its upper left node, and the weights of its four nodes, whose sum is cell²."""

    node: Any
    upper_left: Any
    upper_right: Any
    lower_left: Any
    lower_right: Any


def terms_of(fields: Fields, moves: Moves, window: GridWindow, draw: Draw, like: Array) -> Terms:
    """Return the terms of images and samples from ``draw.first_image`` and ``draw.first_sample`` on.

    Their offsets have the device and the dtype of ``like``.
    """
    device = like.device
    arrays = (torch.from_numpy(moves.offsets).to(like.dtype), *map(torch.from_numpy, (moves.phases, fields.factors)))
    offsets, phases, factors = (array.to(device, non_blocking=True) for array in arrays)
    (n_images, n_samples, n_labels), n_scales = offsets.shape, factors.shape[1]
    apart = factors.stride(0) if len(factors) > 1 else 0
    heights, widths = ([((side - 1) >> (fields.shift + j)) + 3 for j in range(n_scales)] for side in window[:2])
    n_planes, sizes = n_images * n_samples * n_labels, np.multiply(heights, widths)
    nodes = torch.empty(n_planes * int(sizes.sum()), dtype=torch.int32, device=device)
    where = (window.row, window.column, window.width, n_samples)
    rows, columns = (heights[0], widths[0]) if n_scales else (0, 0)
    terms = Terms(nodes, offsets, phases, rows, columns, fields.shift, fields.unit, *where)
    if n_scales:
        notes = torch.zeros(BARRIER.value, dtype=torch.int32, device=device)
        n_tiles = n_images * n_samples * triton.cdiv((n_labels + 1) // 2 * rows * columns, NODES)
        programs = (min(n_tiles, resident_programs(device)),)
        given = (terms, window.height, len(nodes), factors, apart, draw, n_images * n_samples, notes)
        _add_scales[programs](*given, n_labels, n_scales, NODES, **at_once())
    return terms


def add_fields(unary: Array, terms: Terms, out: Array) -> None:
    """Fill ``out`` (n, S, L) with the unaries plus the fields of one sample."""
    n_images, n_sites, n_labels = unary.shape
    grid = (n_images * triton.cdiv(n_sites * n_labels, ITEMS),)
    _add_fields[grid](unary, out, terms, n_sites, n_labels, terms.rows > 0, ITEMS)


@triton.jit(do_not_specialize=["n_pairs", "n_nodes"])
def _add_scales(
    terms,
    height,
    n_nodes,
    factors_ptr,
    factors_apart,
    draw,
    n_pairs,
    notes,
    N_LABELS: tl.constexpr,
    N_SCALES: tl.constexpr,
    NODES: tl.constexpr,
):
    """Fill the nodes of all scales, the coarsest first: the interpolated nodes of the coarser scale plus noise."""
    scale, turn = N_SCALES - 1, 1
    coarse_rows, coarse_columns, coarse_ptr = 0, 0, terms.nodes + tl.cast(n_nodes, tl.int64)
    while scale >= 0:
        level = terms.shift + scale
        rows, columns = ((height - 1) >> level) + 3, ((terms.width - 1) >> level) + 3
        nodes_ptr = coarse_ptr - tl.cast(n_pairs, tl.int64) * N_LABELS * (rows * columns)
        n_items = tl.cast(rows * columns, tl.int64) * ((N_LABELS + 1) // 2)  # two labels share a Philox call
        n_tiles = tl.cdiv(n_items, NODES)
        tile = tl.program_id(0).to(tl.int64)
        while tile < n_pairs * n_tiles:
            pair = tile // n_tiles
            item = tile % n_tiles * NODES + tl.arange(0, NODES)
            two = item // (rows * columns)
            node = (item - two * (rows * columns)).to(tl.int32)
            n, sample = pair // terms.n_samples, draw.first_sample + pair % terms.n_samples
            y0 = (terms.row + tl.load(terms.phases + 2 * pair)) >> level
            x0 = (terms.column + tl.load(terms.phases + 2 * pair + 1)) >> level
            y = node // columns
            x = node - y * columns
            site = (y0 + y).to(tl.int64) * ROWS + x0 + x
            w0, w1, w2, w3 = words(draw.k0, draw.k1, FIELD, draw.first_image + n, sample, site, scale * PAIRS + two)
            upper, lower = ((y0 + y) >> 1) - (y0 >> 1), ((y0 + y + 1) >> 1) - (y0 >> 1)
            left, right = ((x0 + x) >> 1) - (x0 >> 1), ((x0 + x + 1) >> 1) - (x0 >> 1)
            for j in tl.static_range(2):
                k = 2 * two + j
                there = (item < n_items) & (k < N_LABELS)
                factor = tl.load(factors_ptr + n * factors_apart + scale * N_LABELS + k, mask=there, other=0)
                value = factor * ((byte_sum(w0, w1) if j == 0 else byte_sum(w2, w3)) - MEAN)
                if scale < N_SCALES - 1:
                    plane = coarse_ptr + (pair * N_LABELS + k) * (coarse_rows * coarse_columns)
                    four = _load(plane + upper * coarse_columns + left, there)
                    four += _load(plane + upper * coarse_columns + right, there)
                    four += _load(plane + lower * coarse_columns + left, there)
                    four += _load(plane + lower * coarse_columns + right, there)
                    value += (four + 2) >> 2
                tl.store(nodes_ptr + (pair * N_LABELS + k) * (rows * columns) + node, value, mask=there)
            tile += tl.num_programs(0)
        if scale > 0:
            wait_for_all(notes, turn, tl.num_programs(0))
        coarse_rows, coarse_columns, coarse_ptr = rows, columns, nodes_ptr
        scale, turn = scale - 1, turn + 1


@triton.jit
def _load(pointers, mask):
    """Load nodes that other programs may have stored: not from the L1 cache, whose lines may be older."""
    return tl.load(pointers, mask=mask, other=0, cache_modifier=".cg")


@triton.jit
def byte_sum(v, w):
    """Return the sum of the eight bytes of two words."""
    halves = (v & 0x00FF00FF) + ((v >> 8) & 0x00FF00FF) + (w & 0x00FF00FF) + ((w >> 8) & 0x00FF00FF)
    return ((halves & 0xFFFF) + (halves >> 16)).to(tl.int32)


@triton.jit
def corners_of(terms, pair, row, column):
    """Return the cells of lanes in rows and columns of the window."""
    top, left = terms.row + tl.load(terms.phases + 2 * pair), terms.column + tl.load(terms.phases + 2 * pair + 1)
    cell = 1 << terms.shift
    y, x = ((top + row) >> terms.shift) - (top >> terms.shift), ((left + column) >> terms.shift) - (left >> terms.shift)
    down, along = (top + row) & (cell - 1), (left + column) & (cell - 1)
    upper, lower = cell - down, down
    weights = (upper * (cell - along), upper * along, lower * (cell - along), lower * along)
    return Corners(y * terms.columns + x, weights[0], weights[1], weights[2], weights[3])


@triton.jit
def move_of(terms, pair, k, corners, N_LABELS: tl.constexpr, SCALES: tl.constexpr):
    """Return what a pair adds to the scores of label k, a scalar or block: offset and interpolated nodes."""
    move = tl.load(terms.offsets + pair * N_LABELS + k)
    if SCALES:
        node = terms.nodes + (pair * N_LABELS + k) * (terms.rows * terms.columns) + corners.node
        value = corners.upper_left * tl.load(node) + corners.upper_right * tl.load(node + 1)
        node += terms.columns
        value += corners.lower_left * tl.load(node) + corners.lower_right * tl.load(node + 1)
        move += value.to(tl.float32) * tl.cast(terms.unit, tl.float32)
    return move


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
