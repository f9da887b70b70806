"""Models of a raster whose potentials are built window by window."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from locpmap.arrays import refuse_masked
from locpmap.errors import InputError
from locpmap.graphs import Grid, Steps
from locpmap.potentials import Potentials
from locpmap.scale.box import Box
from locpmap.scale.sources import as_mask, as_source, fingerprint, piece_of
from locpmap.scale.terms import Terms


class Builder(Protocol):
    """A function that builds the potentials of a window from its pieces; small, since it is sent with every tile."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and labels of the raster."""

    @property
    def dtype(self) -> Any:
        """Dtype of the probabilities."""

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """Build the potentials from a mask, or None, and the other pieces as NumPy arrays."""


class TiledModel(Protocol):
    """The sources of a raster's potentials."""

    @property
    def builder(self) -> Builder:
        """The builder, which is sent to the workers."""

    def pieces(self, window: Box) -> list[Any]:
        """Return the builder's inputs for a window, to be read by the worker: first the mask or None, then the rest."""

    def example(self, unread: float | None) -> Potentials:
        """Return a tiny model with the smallest weights of the raster.

        ``unread`` replaces weights that are not in memory; None reads these weights.
        """

    def identity(self) -> dict[str, Any]:
        """Return what distinguishes this raster from others, such as shapes and fingerprints."""


@dataclass(frozen=True, eq=False)
class GridBuilder:
    """The builder of a grid: potentials of a window from unaries and pairwise terms."""

    shape: tuple[int, int, int]
    dtype: Any
    connectivity: int | Steps
    terms: Terms

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """Build the potentials from the unaries and from each pairwise term that has a value per edge."""
        unary, *edges = pieces
        where = (window.top, window.left, self.shape[1])
        pairwise = self.terms.pairwise(edges)
        made = Potentials.grid(unary, pairwise, connectivity=self.connectivity, mask=mask, window=where)
        return as_window(made, *self.shape[:2])


def as_window(potentials: Potentials, height: int, width: int) -> Potentials:
    """Return potentials on a window of a grid of the given size, or larger if the window does not fit into it."""
    grid = potentials.structure
    assert isinstance(grid, Grid)
    height, width = max(height, grid.row + grid.height), max(width, grid.column + grid.width)
    return replace(potentials, structure=replace(grid, full_height=height, full_width=width))


@dataclass(frozen=True, eq=False)
class GridModel:
    """The unaries and pairwise terms of :meth:`locpmap.Potentials.grid`, in sources that may exceed the memory."""

    unary: Any
    terms: Terms
    mask: Any
    connectivity: int | Steps

    @classmethod
    def parse(cls, unary: Any, pairwise: Any, mask: Any, connectivity: Any) -> Self:
        """Check the arguments by shape and dtype, without reading sources, and return the model."""
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
        """The builder, in single precision for half and single precision unaries, otherwise in double precision."""
        height, width, n_labels = (int(n) for n in self.unary.shape)
        dtype = np.dtype(np.float32 if self.unary.dtype in (np.float16, np.float32) else np.float64)
        return GridBuilder((height, width, n_labels), dtype, self.connectivity, self.terms.without_values())

    def pieces(self, window: Box) -> list[Any]:
        """Return the mask, the unaries, and each pairwise term that has a value per edge."""
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        return [mask, piece_of(self.unary, window.slices), *self.terms.pieces(window)]

    def example(self, unread: float | None) -> Potentials:
        """Return a model of four sites with the smallest weights."""
        unary = np.zeros((2, 2, self.builder.shape[2]), self.builder.dtype)
        shapes = Grid(2, 2, self.connectivity).direction_shapes
        pairwise = self.terms.pairwise(self.terms.least(shapes, unread))
        return as_window(Potentials.grid(unary, pairwise, connectivity=self.connectivity), *self.builder.shape[:2])

    def identity(self) -> dict[str, Any]:
        """Return the shape, the dtype, the connectivity, and fingerprints of all sources."""
        return {
            "shape": list(self.builder.shape),
            "dtype": str(self.builder.dtype),
            "connectivity": self.connectivity,
            "unary": fingerprint(self.unary),
            "pairwise": self.terms.fingerprints(),
            "mask": None if self.mask is None else fingerprint(self.mask),
        }
