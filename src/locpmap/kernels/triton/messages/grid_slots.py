"""Neighbour lists of a 4-connected grid, computed by arithmetic: equal to those of `locpmap.graphs`, without loads.

A slot is a position in the concatenated neighbour lists.  A site's slots are its existing neighbours to the right,
below, to the left and above: WAY 0 to 3.  A cell is a position of one colour, row by row.  Where the width is odd, the
last cell of every second row has no site.
"""

from typing import NamedTuple

import triton
import triton.language as tl


class Shape(NamedTuple):
    """A grid, in the form that kernels take."""

    height: int
    width: int
    parity: int  # parity of row + column of the corner in the whole image
    per_row: int  # cells per row

    @property
    def n_cells(self) -> int:
        """Number of cells of each colour."""
        return self.height * self.per_row


def shape_of(height: int, width: int, parity: int) -> Shape:
    """Return the shape of a grid."""
    return Shape(height, width, parity, (width + 1) // 2)


@triton.jit
def cells_of(shape, cell, colour):
    """Return the rows and columns of cells; cells outside the grid have no site."""
    row = cell // shape.per_row
    return row, 2 * (cell - row * shape.per_row) + ((row + colour + shape.parity) & 1)


@triton.jit
def _start(shape, row, column):
    """Return the first slot of a site: the number of slots in all rows above and to the left."""
    above = 2 * row * (shape.width - 1) + shape.width * (row + tl.maximum(row - 1, 0))
    vertical = (row > 0).to(tl.int32) + (row + 1 < shape.height).to(tl.int32)
    return above + tl.maximum(2 * column - 1, 0) + column * vertical


@triton.jit
def slot_to(shape, row, column, WAY: tl.constexpr):
    """Return the slots of the neighbours in direction WAY, and which of them exist."""
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
    """Return, for the neighbours in direction WAY, the slot of the same edge in their list, their site and the edge."""
    across, along = row * (shape.width - 1) + column, row * shape.width + column + shape.height * (shape.width - 1)
    # An edge is numbered by its first end, the left or upper one.
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
