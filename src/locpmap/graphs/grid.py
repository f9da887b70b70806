"""Rectangular grids, whole or as windows of a larger grid."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency

MAX_SITE = 2**48  # site numbers, which key the noise, have 48 bits
_NAMES = {(0, 1): "horizontal", (1, 0): "vertical", (1, 1): "diagonal", (1, -1): "antidiagonal"}
_STEPS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, 0), (1, 1), (1, -1))}

Steps: TypeAlias = tuple[tuple[int, int], ...]  # (rows down, columns right) from the first end of an edge to its second


@dataclass(frozen=True)
class Grid:
    """Grid of ``height × width`` sites; site ``(r, c)`` has number ``r · width + c``.

    A step is a pair (rows down, columns right) from the first end of an edge to its second.  Edges are ordered by step:
    horizontal (0, 1), vertical (1, 0) and, with 8 neighbours, diagonal (1, 1) and antidiagonal (1, -1).  Edges of one
    step are in raster order of their first end.

    Args:
        height (int): Number of rows.
        width (int): Number of columns.
        connectivity (int or tuple, default 4): 4 or 8 neighbours, or a tuple of different steps such as
            ``((0, 1), (1, 0), (0, 5), (5, 0))``.  Each step goes down, or right within a row, and its two numbers have
            an odd sum, so that red-black order remains valid.
        row (int, default 0): Row of the upper left site, if the grid is a window of a larger grid.
        column (int, default 0): Column of the upper left site in the larger grid.
        full_width (int, default None): Width of the larger grid.
        full_height (int, default None): Height of the larger grid.  It affects only choices that depend on the total
            size.

    Notes:
        Colours and noise depend on the coordinates in the larger grid.  The interior of a window therefore gets the
        same result as in the larger grid.  For T sweeps, a halo of 2T sites (times the longest step) is enough.

    Example:
        >>> from locpmap.graphs import Grid
        >>> Grid(2, 3).edges().tolist()
        [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]
        >>> Grid(1, 5, ((0, 3),)).edges().tolist()
        [[0, 3], [1, 4]]

    See Also:
        :meth:`locpmap.Potentials.grid`
    """

    height: int
    width: int
    connectivity: int | Steps = 4
    row: int = 0
    column: int = 0
    full_width: int | None = None
    full_height: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.connectivity, tuple):
            steps = check_steps("connectivity", self.connectivity)
            object.__setattr__(self, "connectivity", 4 if steps == _STEPS[4] else steps)
        elif not isinstance(self.connectivity, int | np.integer) or self.connectivity not in (4, 8):
            raise InputError(f"connectivity is {self.connectivity!r}, expected 4 or 8, or a tuple of steps")
        sizes = (("height", 1), ("width", 1), ("row", 0), ("column", 0), ("full_width", 1), ("full_height", 1))
        for name, least in sizes:
            value = getattr(self, name)
            if not name.startswith("full") or value is not None:
                what = f"the grid's {name}" if least else f"the window's {name}"
                object.__setattr__(self, name, whole_number(what, value, least, MAX_SITE))
        for start, size in (("column", "width"), ("row", "height")):
            full, end = getattr(self, f"full_{size}"), getattr(self, start) + getattr(self, size)
            if full is not None and full < end:
                raise InputError(f"full_{size} is {full}, expected at least {start} + {size} = {end}")
        if self.n_sites >= 2**31:
            raise InputError(f"the grid has {self.n_sites} sites, expected fewer than 2^31: split it into windows")
        if (self.row + self.height) * self.whole_width > MAX_SITE:
            raise InputError(
                f"the window ends in row {self.row + self.height} of a grid {self.whole_width} wide, expected a whole"
                " grid of at most 2^48 sites"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sites, (height, width)."""
        return self.height, self.width

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.height * self.width

    @property
    def whole_width(self) -> int:
        """Width of the larger grid, or of the grid itself."""
        return self.full_width or self.column + self.width

    @property
    def whole_sites(self) -> int:
        """Number of sites of the larger grid, or of the grid itself.

        If the height of the larger grid is unknown, it is taken to end with this window.
        """
        return self.whole_width * (self.full_height or self.row + self.height)

    @property
    def steps(self) -> Steps:
        """Steps (rows down, columns right) from the first end of an edge to its second."""
        return self.connectivity if isinstance(self.connectivity, tuple) else _STEPS[self.connectivity]

    @property
    def direction_shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of per-edge values for each step: (H, W-1), (H-1, W) and twice (H-1, W-1)."""
        return tuple((max(0, self.height - dr), max(0, self.width - abs(dc))) for dr, dc in self.steps)

    @property
    def direction_sizes(self) -> list[int]:
        """Number of edges of each step."""
        return [height * width for height, width in self.direction_shapes]

    def edges(self) -> npt.NDArray[np.int32]:
        """Return both ends of every edge, (E, 2)."""
        number = np.arange(self.n_sites, dtype=np.int32).reshape(self.shape)
        ends = (ends_of(step, *self.shape) for step in self.steps)
        pairs = [np.stack([number[first].ravel(), number[second].ravel()], axis=1) for first, second in ends]
        return np.concatenate(pairs)

    def adjacency(self) -> Adjacency:
        """Return neighbour lists."""
        return adjacency(self.n_sites, self.edges())

    def global_coordinates(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return row numbers (H, 1) and column numbers (1, W) in the larger grid."""
        rows = np.arange(self.row, self.row + self.height, dtype=np.int64)[:, None]
        columns = np.arange(self.column, self.column + self.width, dtype=np.int64)[None]
        return rows, columns

    def colours(self) -> npt.NDArray[np.int32]:
        """Return red-black colours (S,), or four colours by the parities of row and column for 8 neighbours."""
        rows, columns = self.global_coordinates()
        colours = 2 * (rows % 2) + columns % 2 if self.connectivity == 8 else (rows + columns) % 2
        # A small window may lack a colour: number the classes without gaps, in the global order.
        return np.unique(colours.ravel(), return_inverse=True)[1].astype(np.int32)

    def site_ids(self) -> npt.NDArray[np.int64]:
        """Return the site numbers in the larger grid, which key the noise, (S,)."""
        rows, columns = self.global_coordinates()
        return (rows * self.whole_width + columns).ravel()


def ends_of(step: tuple[int, int], height: int, width: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Return the slices (rows, columns) of the first ends of all edges with a step, and of their second ends.

    >>> from locpmap.graphs import ends_of
    >>> ends_of((0, 1), 2, 3)
    ((slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(1, 3, None)))
    """
    (above, below), (left, right) = _shifted(step[0], height), _shifted(step[1], width)
    return (above, left), (below, right)


def _shifted(by: int, length: int) -> tuple[slice, slice]:
    """Return the positions that stay in range when shifted, and the shifted positions."""
    overlap = max(0, length - abs(by))
    near, far = slice(0, overlap), slice(length - overlap, length)
    return (near, far) if by >= 0 else (far, near)


def name_of(step: tuple[int, int]) -> str:
    """Return the name of a step."""
    return _NAMES.get(step, f"step {step}")


def check_steps(name: str, steps: object) -> Steps:
    """Return the steps as a tuple of pairs, or raise if they do not allow red-black order."""
    expected = "expected different steps (rows down, columns right), each down or to the right, with an odd sum"
    listed = steps if isinstance(steps, tuple | list) else ()
    pairs = [tuple(step) for step in listed if isinstance(step, tuple | list) and len(step) == 2]
    whole = [pair for pair in pairs if all(type(n) is int for n in pair)]
    right = [pair for pair in whole if (pair[0] > 0 or (pair[0] == 0 and pair[1] > 0)) and sum(pair) % 2 == 1]
    if not listed or len(set(right)) < len(listed):
        raise InputError(f"{name} is {steps!r}, {expected}")
    return tuple(right)
