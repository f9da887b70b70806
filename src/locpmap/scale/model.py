"""Potentials of a raster that are made window by window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from locpmap.arrays import refuse_masked
from locpmap.errors import InputError
from locpmap.graphs import Grid, Steps
from locpmap.potentials import Potentials
from locpmap.scale.box import Box
from locpmap.scale.sources import as_mask, as_source, fingerprint, piece_of
from locpmap.scale.terms import Terms


class Builder(Protocol):
    """Makes the potentials of a window from what was read of it; small, since every tile takes it along."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and labels of the raster."""

    @property
    def dtype(self) -> Any:
        """Of the probabilities."""

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """The potentials, from a mask or None and the other pieces, as NumPy arrays."""


class TiledModel(Protocol):
    """What a raster's tiles are made of."""

    @property
    def builder(self) -> Builder:
        """What workers need beside the pieces."""

    def pieces(self, window: Box) -> list[Any]:
        """What the builder needs of the sources, to be read where the work is done; the mask, or None, first."""

    def example(self, unread: float | None) -> Potentials:
        """Make a tiny model of the same kind with the least weights; those not in memory are ``unread``, or read."""

    def identity(self) -> dict[str, Any]:
        """What tells this raster from another."""


@dataclass(frozen=True, eq=False)
class GridBuilder:
    """Potentials of windows of a grid."""

    shape: tuple[int, int, int]
    dtype: Any
    connectivity: int | Steps
    terms: Terms

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """From the unaries and every pairwise term that has a value per edge."""
        unary, *edges = pieces
        where = (window.top, window.left, self.shape[1])
        pairwise = self.terms.pairwise(edges)
        made = Potentials.grid(unary, pairwise, connectivity=self.connectivity, mask=mask, window=where)
        grid = made.structure
        assert isinstance(grid, Grid)
        return replace(made, structure=replace(grid, full_height=self.shape[0]))


@dataclass(frozen=True, eq=False)
class GridModel:
    """Unaries and pairwise terms as :meth:`locpmap.Potentials.grid` takes them, in sources that may be large."""

    unary: Any
    terms: Terms
    mask: Any
    connectivity: int | Steps

    @classmethod
    def parse(cls, unary: Any, pairwise: Any, mask: Any, connectivity: Any) -> GridModel:
        """Check what can be checked without reading."""
        refuse_masked(unary, "unary")
        scores = as_source(unary, "unary")
        if len(scores.shape) != 3:
            raise InputError(f"unary has shape {tuple(scores.shape)}, expected (H, W, L)")
        if 0 in scores.shape:
            raise InputError(f"unary is empty: it has shape {tuple(scores.shape)}, expected at least one of each")
        height, width, n_labels = (int(n) for n in scores.shape)
        mask = as_mask(mask, (height, width), unary=scores)
        grid = Grid(1, 1, connectivity)
        return cls(scores, Terms.parse(pairwise, (height, width, n_labels), grid.steps), mask, grid.connectivity)

    @property
    def builder(self) -> GridBuilder:
        """With single precision for half and single, double for the rest, as potentials have it."""
        height, width, n_labels = (int(n) for n in self.unary.shape)
        dtype = np.dtype(np.float32 if self.unary.dtype in (np.float16, np.float32) else np.float64)
        return GridBuilder((height, width, n_labels), dtype, self.connectivity, self.terms.without_values())

    def pieces(self, window: Box) -> list[Any]:
        """The mask, the unaries, and every pairwise term that has a value per edge."""
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        return [mask, piece_of(self.unary, window.slices), *self.terms.pieces(window)]

    def example(self, unread: float | None) -> Potentials:
        """Make a model of four sites with the least weights."""
        unary = np.zeros((2, 2, self.builder.shape[2]), self.builder.dtype)
        shapes = Grid(2, 2, self.connectivity).direction_shapes
        pairwise = self.terms.pairwise(self.terms.least(shapes, unread))
        return Potentials.grid(unary, pairwise, connectivity=self.connectivity)

    def identity(self) -> dict[str, Any]:
        """Shapes, and fingerprints of everything."""
        return {
            "shape": list(self.builder.shape),
            "dtype": str(self.builder.dtype),
            "connectivity": self.connectivity,
            "unary": fingerprint(self.unary),
            "pairwise": self.terms.fingerprints(),
            "mask": None if self.mask is None else fingerprint(self.mask),
        }
