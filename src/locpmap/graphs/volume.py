"""Volumes: cuboids of voxels, whole or as windows of a larger volume."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from locpmap.errors import InputError
from locpmap.graphs.grid import Box, Grid

_STEPS: dict[int, tuple[tuple[int, ...], ...]] = {6: ((0, 0, 1), (0, 1, 0), (1, 0, 0))}
_STEPS[26] = (
    *_STEPS[6],
    *((0, 1, 1), (0, 1, -1), (1, 0, 1), (1, 0, -1), (1, 1, 0), (1, -1, 0)),
    *((1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1)),
)


@dataclass(frozen=True)
class Volume(Box):
    """Volume of ``depth × height × width`` sites; site ``(z, y, x)`` has number ``(z · height + y) · width + x``.

    A step is a triple (planes, rows, columns) from the first end of an edge to its second.  Edges are ordered by step:
    (0, 0, 1), (0, 1, 0), (1, 0, 0) and, with 26 neighbours, (0, 1, 1), (0, 1, -1), (1, 0, 1), (1, 0, -1), (1, 1, 0),
    (1, -1, 0), (1, 1, 1), (1, 1, -1), (1, -1, 1) and (1, -1, -1).  Edges of one step are in raster order of their
    first end.

    Args:
        depth (int): Number of planes.
        height (int): Number of rows of a plane.
        width (int): Number of columns of a plane.
        connectivity (int, default 6): 6 or 26 neighbours.
        plane (int, default 0): Plane of the first site, if the volume is a window of a larger volume.
        row (int, default 0): Row of the first site in the larger volume.
        column (int, default 0): Column of the first site in the larger volume.
        full_height (int, default None): Height of the larger volume.
        full_width (int, default None): Width of the larger volume.
        full_depth (int, default None): Depth of the larger volume.  It affects only choices that depend on the total
            size.
        spacing (tuple of float, default None): Sides (dz, dy, dx) of a voxel, for :func:`locpmap.measure`; None is 1.

    Notes:
        Colours and noise depend on the coordinates in the larger volume, as on a :class:`Grid`.  For T sweeps, a halo
        of 2T sites is enough with 6 neighbours, and one of 8T sites with 26, which have eight colours.

    Example:
        >>> from locpmap.graphs import Volume
        >>> Volume(2, 1, 2).edges().tolist()
        [[0, 1], [2, 3], [0, 2], [1, 3]]
        >>> Volume(2, 2, 2, 26).direction_sizes
        [4, 4, 4, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1]

    See Also:
        :meth:`locpmap.Potentials.volume`
    """

    _axes: ClassVar = (("plane", "depth"), ("row", "height"), ("column", "width"))
    depth: int
    height: int
    width: int
    connectivity: int = 6
    plane: int = 0
    row: int = 0
    column: int = 0
    full_height: int | None = None
    full_width: int | None = None
    full_depth: int | None = None
    spacing: tuple[float, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.connectivity, int | np.integer) or self.connectivity not in _STEPS:
            raise InputError(f"connectivity is {self.connectivity!r}, expected 6 or 26 neighbours in a volume")
        self._check_place("volume")

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """Steps (planes, rows, columns) from the first end of an edge to its second."""
        return _STEPS[self.connectivity]


def box_of(shape: Sequence[int], connectivity: Any) -> Box:
    """Return the grid (H, W) or the volume (D, H, W) of a shape.

    >>> from locpmap.graphs import box_of
    >>> box_of((2, 3, 4), 6).direction_sizes
    [18, 16, 12]
    """
    *depth, height, width = shape
    return Volume(depth[0], height, width, connectivity) if depth else Grid(height, width, connectivity)
