"""Neighbour lists of a grid of 4 neighbours by arithmetic: what `locpmap.graphs` lists, without reading it.

A site's slots are those of its neighbours to the right, below, to the left and above, as far as there are any: WAY 0
to 3.  A cell is a place of one colour, row by row; where the width is odd, rows have one cell more than sites of one of
the colours.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class Shape(NamedTuple):
    """A grid, as kernels take it: one argument."""

    height: int
    width: int
    parity: int  # of row + column at the corner, in the whole image
    per_row: int  # cells

    @property
    def n_cells(self) -> int:
        """Of each colour."""
        return self.height * self.per_row


def shape_of(height: int, width: int, parity: int) -> Shape:
    """The shape of a grid."""
    return Shape(height, width, parity, (width + 1) // 2)


@triton.jit
def cells_of(shape, cell, colour):
    """Rows and columns of cells; those beyond the grid are of no site."""
    row = cell // shape.per_row
    return row, 2 * (cell - row * shape.per_row) + ((row + colour + shape.parity) & 1)


@triton.jit
def _start(shape, row, column):
    """Where the list of a site begins: what all rows above hold, then what is to the left."""
    above = 2 * row * (shape.width - 1) + shape.width * (row + tl.maximum(row - 1, 0))
    vertical = (row > 0).to(tl.int32) + (row + 1 < shape.height).to(tl.int32)
    return above + tl.maximum(2 * column - 1, 0) + column * vertical


@triton.jit
def slot_to(shape, row, column, WAY: tl.constexpr):
    """The slots of a way's neighbours, and which of them there are."""
    right, below = column + 1 < shape.width, row + 1 < shape.height
    slot = _start(shape, row, column)
    if WAY == 0:
        real = right
    elif WAY == 1:
        real = below
        slot += right.to(tl.int32)
    elif WAY == 2:
        real = column > 0
        slot += right.to(tl.int32) + below.to(tl.int32)
    else:
        real = row > 0
        slot += right.to(tl.int32) + below.to(tl.int32) + (column > 0).to(tl.int32)
    return slot, real


@triton.jit
def edge_to(shape, row, column, WAY: tl.constexpr):
    """The slots of the same edges in the lists of a way's neighbours, these neighbours, and the edges."""
    across, along = row * (shape.width - 1) + column, row * shape.width + column + shape.height * (shape.width - 1)
    # An edge has the number of its first end, the one to the left or above.
    if WAY == 0:
        column, edge = column + 1, across
    elif WAY == 1:
        row, edge = row + 1, along
    elif WAY == 2:
        column, edge = column - 1, across - 1
    else:
        row, edge = row - 1, along - shape.width
    back, _ = slot_to(shape, row, column, (WAY + 2) % 4)
    return back, row * shape.width + column, edge
