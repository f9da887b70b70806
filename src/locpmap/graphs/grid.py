"""Rectangular grids, whole or as windows of a larger grid, and the base class of grids and volumes."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency

MAX_SITE = 2**48  # site numbers, which key the noise, have 48 bits
_NAMES: dict[tuple[int, ...], str] = {
    (0, 1): "horizontal",
    (1, 0): "vertical",
    (1, 1): "diagonal",
    (1, -1): "antidiagonal",
}
_STEPS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, 0), (1, 1), (1, -1))}

Steps: TypeAlias = tuple[tuple[int, int], ...]  # (rows down, columns right) from the first end of an edge to its second


class Box(ABC):
    """Sites in a rectangle or cuboid, numbered in raster order, possibly a window of a larger one."""

    _axes: ClassVar[tuple[tuple[str, str], ...]]  # fields of each axis: where the window starts, and its length

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sites: (height, width) of a grid, (depth, height, width) of a volume."""
        return tuple(getattr(self, size) for _, size in self._axes)

    @property
    def corner(self) -> tuple[int, ...]:
        """Coordinates of the first site in the larger grid (row, column) or volume (plane, row, column)."""
        return tuple(getattr(self, start) for start, _ in self._axes)

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the larger grid or volume, or of this one; an unknown length is taken to end with this window."""
        full = (getattr(self, f"full_{size}") for _, size in self._axes)
        return tuple(n or a + b for n, a, b in zip(full, self.corner, self.shape, strict=True))

    @property
    @abstractmethod
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """Steps along each axis from the first end of an edge to its second."""

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return math.prod(self.shape)

    @property
    def whole_sites(self) -> int:
        """Number of sites of the larger grid or volume."""
        return math.prod(self.whole_shape)

    @property
    def direction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of per-edge values for each step, such as (H, W-1), (H-1, W) and twice (H-1, W-1)."""
        return tuple(tuple(max(0, n - abs(d)) for n, d in zip(self.shape, step, strict=True)) for step in self.steps)

    @property
    def direction_sizes(self) -> list[int]:
        """Number of edges of each step."""
        return [math.prod(shape) for shape in self.direction_shapes]

    def edges(self) -> npt.NDArray[np.int32]:
        """Return both ends of every edge, (E, 2)."""
        number = np.arange(self.n_sites, dtype=np.int32).reshape(self.shape)
        ends = (ends_of(step, *self.shape) for step in self.steps)
        pairs = [np.stack([number[first].ravel(), number[second].ravel()], axis=1) for first, second in ends]
        return np.concatenate(pairs)

    def adjacency(self) -> Adjacency:
        """Return neighbour lists."""
        return adjacency(self.n_sites, self.edges())

    def global_coordinates(self) -> tuple[npt.NDArray[np.int64], ...]:
        """Return the coordinates in the larger grid or volume, one array per axis: (H, 1) and (1, W) on a grid."""
        ranges = (np.arange(start, start + n, dtype=np.int64) for start, n in zip(self.corner, self.shape, strict=True))
        return np.ix_(*ranges)

    def colours_of(self, coordinates: tuple[npt.NDArray[np.int64], ...]) -> npt.NDArray[np.int64]:
        """Return colours of sites or tiles: red-black, or by the parities of all coordinates with diagonal steps."""
        if all(sum(step) % 2 for step in self.steps):
            return reduce(np.add, coordinates) % 2
        return reduce(lambda colour, along: 2 * colour + along % 2, coordinates, np.zeros((), np.int64))

    def colours(self) -> npt.NDArray[np.int32]:
        """Return the colours of the sites, (S,)."""
        # A small window may lack a colour: number the classes without gaps, in the global order.
        colours = self.colours_of(self.global_coordinates()).ravel()
        return (np.cumsum(np.bincount(colours) > 0, dtype=np.int32) - 1)[colours]

    def site_ids(self) -> npt.NDArray[np.int64]:
        """Return the site numbers in the larger grid or volume, which key the noise, (S,)."""
        first, *others = self.global_coordinates()
        for n, along in zip(self.whole_shape[1:], others, strict=True):
            first = first * n + along
        return first.ravel()

    def _check_place(self, what: str) -> None:
        """Validate and convert lengths, the corner and the lengths of the larger box."""
        for start, size in self._axes:
            full = f"full_{size}"
            for name, role, least in ((size, what, 1), (start, "window", 0), (full, what, 1)):
                value = getattr(self, name)
                if name != full or value is not None:
                    object.__setattr__(self, name, whole_number(f"the {role}'s {name}", value, least, MAX_SITE))
            whole, end = getattr(self, full), getattr(self, start) + getattr(self, size)
            if whole is not None and whole < end:
                raise InputError(f"{full} is {whole}, expected at least {start} + {size} = {end}")
        if self.n_sites >= 2**31:
            raise InputError(f"the {what} has {self.n_sites} sites, expected fewer than 2^31: split it into windows")
        (start, size), *_ = self._axes
        across = self.whole_shape[1:]
        end = getattr(self, start) + getattr(self, size)
        if end * math.prod(across) > MAX_SITE:
            raise InputError(
                f"the window ends in {start} {end} of a {what} {' × '.join(map(str, across))} wide, expected a whole"
                f" {what} of at most 2^48 sites"
            )


@dataclass(frozen=True)
class Grid(Box):
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

    _axes: ClassVar = (("row", "height"), ("column", "width"))
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
        self._check_place("grid")

    @property
    def whole_width(self) -> int:
        """Width of the larger grid, or of the grid itself."""
        return self.whole_shape[1]

    @property
    def steps(self) -> Steps:
        """Steps (rows down, columns right) from the first end of an edge to its second."""
        return self.connectivity if isinstance(self.connectivity, tuple) else _STEPS[self.connectivity]


def ends_of(step: tuple[int, ...], *shape: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices, one per axis, of the first ends of all edges with a step, and of their second ends.

    >>> from locpmap.graphs import ends_of
    >>> ends_of((0, 1), 2, 3)
    ((slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(1, 3, None)))
    """
    pairs = [_shifted(by, length) for by, length in zip(step, shape, strict=True)]
    return tuple(first for first, _ in pairs), tuple(second for _, second in pairs)


def _shifted(by: int, length: int) -> tuple[slice, slice]:
    """Return the positions that stay in range when shifted, and the shifted positions."""
    overlap = max(0, length - abs(by))
    near, far = slice(0, overlap), slice(length - overlap, length)
    return (near, far) if by >= 0 else (far, near)


def name_of(step: tuple[int, ...]) -> str:
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
