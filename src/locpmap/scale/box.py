"""Rectangles of a raster."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right`` of the raster, the last ones excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Which of an array's rows and columns these are."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.bottom - self.top, self.right - self.left

    def within(self, other: Box) -> Box:
        """The same box, counted from the corner of another."""
        top, left = other.top, other.left
        return Box(self.top - top, self.bottom - top, self.left - left, self.right - left)

    def in_blocks(self, height: int, width: int) -> Box:
        """As many complete blocks of that size, counted in the whole raster, as hold it.

        >>> Box(5, 9, 1, 3).in_blocks(4, 1)
        Box(top=4, bottom=12, left=1, right=3)
        """
        top, left = self.top // height * height, self.left // width * width
        return Box(top, -(-self.bottom // height) * height, left, -(-self.right // width) * width)

    def grown(self, rows: int, columns: int) -> Box:
        """With so many rows and columns around it."""
        return Box(self.top - rows, self.bottom + rows, self.left - columns, self.right + columns)

    def inside(self, height: int, width: int) -> Box:
        """What of it lies in a raster of that size."""
        return Box(max(0, self.top), min(height, self.bottom), max(0, self.left), min(width, self.right))
