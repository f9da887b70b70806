"""Boxes: rectangles of a raster."""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """Rows ``top`` to ``bottom - 1`` and columns ``left`` to ``right - 1`` of a raster."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Slices of the rows and columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
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
