"""The tiles of a raster, and their windows: the tile with its halo, which contains all sites that its labels depend on.

The *reach* of a decoder are the sites that a site's label depends on after a number of sweeps. A sweep updates one
colour class after another; the update of one class is called a visit. Sites (or blocks) of one class are not
neighbours. The new labels of a visit therefore depend only on the same blocks and on their neighbours before the visit.
Following this dependence from the last visit back to the first gives the reach:

- With 4 neighbours there are two classes (red and black), so T sweeps reach 2T rows and columns.
- With 8 neighbours there are four classes, two of even rows and two of odd rows: 2T rows, but 4T columns.
- Tiles of a volume are whole along its last axis, and "rows and columns" are its planes and rows.  With 6 neighbours T
  sweeps reach 2T of each.  With 26 neighbours there are eight classes, four of even and four of odd planes: 2T planes
  and 4T rows.
- Conditional probabilities add one step, because they depend on the final labels of the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from locpmap.errors import InputError, whole_number
from locpmap.graphs import Steps, box_of
from locpmap.inference import DECODERS
from locpmap.inference.decoder import Decoder


class Box(NamedTuple):
    """Rows ``top`` to ``bottom - 1`` and columns ``left`` to ``right - 1`` of a raster."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        return slice(self.top, self.bottom), slice(self.left, self.right)

    @property
    def shape(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left

    def within(self, other: Box) -> Box:
        """Return the box in coordinates relative to the top left corner of another box."""
        top, left = other.top, other.left
        return Box(self.top - top, self.bottom - top, self.left - left, self.right - left)

    def in_blocks(self, height: int, width: int) -> Box:
        """Return the smallest box of complete blocks of the given size that contains this box.

        Blocks are aligned with the whole raster.

        >>> Box(5, 9, 1, 3).in_blocks(4, 1)
        Box(top=4, bottom=12, left=1, right=3)
        """
        top, left = self.top // height * height, self.left // width * width
        return Box(top, -(-self.bottom // height) * height, left, -(-self.right // width) * width)

    def grown(self, rows: int, columns: int) -> Box:
        """Return the box with the given numbers of rows and columns added on every side."""
        return Box(self.top - rows, self.bottom + rows, self.left - columns, self.right + columns)

    def inside(self, height: int, width: int) -> Box:
        """Return the part of the box inside a raster of the given size."""
        return Box(max(0, self.top), min(height, self.bottom), max(0, self.left), min(width, self.right))


class Visit(NamedTuple):
    """Sites that a visit depends on: complete blocks of the given size, and the rows and columns around them."""

    block_height: int
    block_width: int
    rows: int
    columns: int


class Reach(NamedTuple):
    """The margins that a window needs around its tile."""

    visits: tuple[Visit, ...]  # of one sweep, the last one first
    n_sweeps: int
    near: tuple[int, int] = (0, 0)  # additional rows and columns whose final labels are needed
    margin: tuple[int, int] = (0, 0)  # rows and columns around a site that its potentials depend on

    def window(self, core: Box) -> Box:
        """Return the box of sites that the labels in ``core`` depend on, in an infinite raster.

        >>> from locpmap.inference import LocPMAP
        >>> reach_of(LocPMAP(max_sweeps=4, probability="votes")).window(Box(100, 200, 100, 300))
        Box(top=92, bottom=208, left=92, right=308)
        """
        first = self._sweep(core.grown(*self.near))
        # All blocks have the same height and width, or 1.  After the first sweep, the sides of the box have a fixed
        # offset from the block boundaries, so each further sweep adds as much as the second.
        second = self._sweep(first)
        last = Box(*(one + (self.n_sweeps - 1) * (two - one) for one, two in zip(first, second, strict=True)))
        return last.grown(*self.margin)

    def _sweep(self, box: Box) -> Box:
        """Return the box of sites that the labels in a box depend on after one sweep."""
        for visit in self.visits:
            box = box.in_blocks(visit.block_height, visit.block_width).grown(visit.rows, visit.columns)
        return box

    @property
    def halo(self) -> tuple[int, int]:
        """Largest numbers of rows and columns that a window adds on one side of its tile."""
        rows = self.n_sweeps * sum(visit.rows + visit.block_height - 1 for visit in self.visits)
        columns = self.n_sweeps * sum(visit.columns + visit.block_width - 1 for visit in self.visits)
        return rows + self.near[0] + self.margin[0], columns + self.near[1] + self.margin[1]


def reach_of(decoder: Decoder, connectivity: int | Steps = 4, n_axes: int = 2) -> Reach:
    """Return the reach of a decoder on a grid, or in a volume of 3 axes; raise with the reason if it is unbounded.

    >>> from locpmap.inference import LocPMAP
    >>> reach_of(LocPMAP(max_sweeps=16)).halo
    (33, 33)
    >>> reach_of(LocPMAP(max_sweeps=16, probability="votes")).halo
    (32, 32)
    >>> reach_of(LocPMAP(max_sweeps=5, blocks=(2, 3), probability="votes")).halo
    (20, 30)
    >>> reach_of(LocPMAP(max_sweeps=5, blocks="columns:3", probability="votes"), 26, n_axes=3).halo
    (10, 100)
    """
    locality = decoder.locality()
    if locality is None:
        local = [name for name, kind in DECODERS.items() if kind().locality() is not None]
        known = f"{', '.join(local[:-1])} or {local[-1]}"
        raise InputError(f"method is {decoder.name}, expected {known} for tiles: {decoder.unbounded}")
    if not isinstance(getattr(decoder, "start", ""), str):
        raise InputError("start is an array, expected the name of a start for tiles")
    steps = box_of((1,) * n_axes, connectivity).steps
    down, across = (max(abs(step[axis]) for step in steps) for axis in (0, 1))
    # Consecutive classes with the same rows, or planes of a volume, add them to the reach only once.
    of_classes = {
        8: [(down, across), (0, across)] * 2,
        26: [(down, across), (0, 0), (0, across), (0, 0)] * 2,
    }.get(connectivity if isinstance(connectivity, int) else 4, [(down, across)] * 2)
    # Sizes of blocks along the first two axes.
    sizes = [(1, *size)[-n_axes:][:2] for size in reversed(locality.block_sizes)]
    visits = [Visit(height, width, *beside) for height, width in sizes for beside in of_classes]
    return Reach(tuple(visits), locality.n_sweeps, (down, across) if locality.reads_neighbours else (0, 0))


class Tile(NamedTuple):
    """A tile of a raster: ``core`` is the box of its results, and ``window`` the larger box of its inputs."""

    row: int  # in the grid of tiles
    column: int
    core: Box
    window: Box


@dataclass(frozen=True)
class Tiling:
    """Tiles of ``tile_height × tile_width`` that cover a raster; tiles in the last row and column may be smaller.

    >>> from locpmap.inference import LocPMAP
    >>> tiling = Tiling(100, 70, 64, 64, reach_of(LocPMAP(max_sweeps=4)))
    >>> tiling.shape
    (2, 2)
    >>> tiling.tile(1, 0).window
    Box(top=55, bottom=100, left=0, right=70)
    """

    height: int
    width: int
    tile_height: int
    tile_width: int
    reach: Reach

    @property
    def shape(self) -> tuple[int, int]:
        return -(-self.height // self.tile_height), -(-self.width // self.tile_width)

    def tile(self, row: int, column: int) -> Tile:
        top, left = row * self.tile_height, column * self.tile_width
        bottom, right = min(top + self.tile_height, self.height), min(left + self.tile_width, self.width)
        core = Box(top, bottom, left, right)
        return Tile(row, column, core, self.reach.window(core).inside(self.height, self.width))

    def __iter__(self) -> Iterator[Tile]:
        rows, columns = self.shape
        return (self.tile(i, j) for i in range(rows) for j in range(columns))


def tile_size(tile: Any, n_axes: int = 2) -> tuple[int, int]:
    """Return height and width, or planes and rows in a volume of 3 axes, from one number for both or a pair."""
    sides = tile if isinstance(tile, tuple | list) else (tile, tile)
    if len(sides) != 2:
        expected = "(height, width)" if n_axes == 2 else "(depth, height): tiles of a volume have its whole width"
        raise InputError(f"tile is {tile!r}, expected one number or two {expected}")
    height, width = (whole_number("a side of tile", side, 1) for side in sides)
    return height, width
