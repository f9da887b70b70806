"""The tiles of a raster and their windows. The window of a tile is the tile with its halo."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from locpmap.errors import InputError, whole_number
from locpmap.scale.box import Box
from locpmap.scale.reach import Reach


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
    >>> from locpmap.scale.reach import reach_of
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
        """Numbers of rows and columns of tiles."""
        return -(-self.height // self.tile_height), -(-self.width // self.tile_width)

    def tile(self, row: int, column: int) -> Tile:
        """Return the tile in the given row and column."""
        top, left = row * self.tile_height, column * self.tile_width
        bottom, right = min(top + self.tile_height, self.height), min(left + self.tile_width, self.width)
        core = Box(top, bottom, left, right)
        return Tile(row, column, core, self.reach.window(core).inside(self.height, self.width))

    def __iter__(self) -> Iterator[Tile]:
        rows, columns = self.shape
        return (self.tile(i, j) for i in range(rows) for j in range(columns))


def tile_size(tile: Any) -> tuple[int, int]:
    """Return height and width, from one number for both or a pair."""
    sides = tile if isinstance(tile, tuple | list) else (tile, tile)
    if len(sides) != 2:
        raise InputError(f"tile is {tile!r}, expected one number or two (height, width)")
    height, width = (whole_number("a side of tile", side, 1) for side in sides)
    return height, width
