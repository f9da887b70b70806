"""Rectangular grids with 4 or 8 neighbours, whole or as a window of a larger one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency

MAX_SITE = 2**48  # site numbers of the whole grid, which key the noise, have so many bits
_STEPS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, 0), (1, 1), (1, -1))}


@dataclass(frozen=True)
class Grid:
    """A ``height × width`` grid; site ``(r, c)`` has number ``r · width + c``.

    A window of a larger grid says where its corner lies (``row``, ``column``) and how wide the whole is
    (``full_width``).  Colours and noise follow the global coordinates, so the interior of a window comes out
    as it does in the whole grid (a halo of 2T sites is enough for T sweeps).

    Edges come direction by direction: horizontal, vertical and, with 8 neighbours, the two diagonals (down-right,
    down-left), each in raster order of its upper left end.

    >>> Grid(2, 3).edges().tolist()
    [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]
    """

    height: int
    width: int
    connectivity: int = 4
    row: int = 0
    column: int = 0
    full_width: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.connectivity, int | np.integer) or self.connectivity not in (4, 8):
            raise InputError(f"connectivity is {self.connectivity!r}, expected 4 or 8")
        for name, least in (("height", 1), ("width", 1), ("row", 0), ("column", 0), ("full_width", 1)):
            value = getattr(self, name)
            if name != "full_width" or value is not None:
                what = f"the grid's {name}" if least else f"the window's {name}"
                object.__setattr__(self, name, whole_number(what, value, least, MAX_SITE))
        if self.full_width is not None and self.full_width < self.column + self.width:
            raise InputError(
                f"full_width is {self.full_width}, expected at least column + width = {self.column + self.width}"
            )
        if self.n_sites >= 2**31:
            raise InputError(f"the grid has {self.n_sites} sites, expected fewer than 2^31: split it into windows")
        if (self.row + self.height) * self.whole_width > MAX_SITE:
            raise InputError(
                f"the window ends in row {self.row + self.height} of a grid {self.whole_width} wide, expected a whole"
                " grid of at most 2^48 sites"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width)."""
        return self.height, self.width

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.height * self.width

    @property
    def whole_width(self) -> int:
        """The width of the grid that this is a window of, or of the grid itself."""
        return self.full_width or self.column + self.width

    @property
    def direction_shapes(self) -> tuple[tuple[int, int], ...]:
        """The shape of per-edge values, one per direction: (H, W-1), (H-1, W) and twice (H-1, W-1)."""
        return tuple((self.height - dr, self.width - abs(dc)) for dr, dc in _STEPS[self.connectivity])

    def edges(self) -> npt.NDArray[np.int32]:
        """Both ends of every edge, (E, 2)."""
        number = np.arange(self.n_sites, dtype=np.int32).reshape(self.shape)
        pairs = []
        for dr, dc in _STEPS[self.connectivity]:
            rows = slice(None, self.height - dr), slice(dr, None)
            if dc >= 0:
                columns = slice(None, self.width - dc), slice(dc, None)
            else:
                columns = slice(-dc, None), slice(None, self.width + dc)
            ends = (number[r, c].ravel() for r, c in zip(rows, columns, strict=True))
            pairs.append(np.stack(tuple(ends), axis=1))
        return np.concatenate(pairs)

    def adjacency(self) -> Adjacency:
        """Neighbour lists."""
        return adjacency(self.n_sites, self.edges())

    def global_coordinates(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Row (H, 1) and column (1, W) numbers in the whole grid."""
        rows = np.arange(self.row, self.row + self.height, dtype=np.int64)[:, None]
        columns = np.arange(self.column, self.column + self.width, dtype=np.int64)[None]
        return rows, columns

    def colours(self) -> npt.NDArray[np.int32]:
        """Red-black for 4 neighbours; four colours by the parities of row and column for 8."""
        rows, columns = self.global_coordinates()
        colours = (rows + columns) % 2 if self.connectivity == 4 else 2 * (rows % 2) + columns % 2
        # A small window may lack a colour: classes are numbered without gaps, in the global order.
        return np.unique(colours.ravel(), return_inverse=True)[1].astype(np.int32)

    def site_ids(self) -> npt.NDArray[np.int64]:
        """Global site numbers, which key the noise."""
        rows, columns = self.global_coordinates()
        return (rows * self.whole_width + columns).ravel()
