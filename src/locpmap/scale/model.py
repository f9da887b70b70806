"""Models of a raster whose potentials are built window by window, with values per edge read window by window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from locpmap.arrays import refuse_masked, to_numpy
from locpmap.errors import InputError
from locpmap.graphs import Grid, Steps
from locpmap.graphs.grid import name_of
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials
from locpmap.scale.sources import as_mask, as_source, fingerprint, piece_of
from locpmap.scale.tiling import Box

BAND = 2**22  # weights read at a time


@dataclass(frozen=True, eq=False)
class Terms:
    """A pairwise term in any form of :meth:`locpmap.Potentials.grid`."""

    entries: tuple[Any, ...]  # one for all edges, or one per step
    steps: Steps
    per_edge: tuple[bool, ...]  # whether an entry is a source with a value for every edge of the raster
    tables: Any  # of Factored, otherwise None
    shared: bool  # whether there is one entry for all edges

    @classmethod
    def parse(cls, pairwise: Any, shape: tuple[int, int, int], steps: Steps) -> Self:
        """Check a pairwise term by its shapes, without reading values per edge.

        An entry has one value per edge (shape: edges + one of ``tails``) or one value for all edges (a shape in
        ``whole``).  A value is a number, a table or a vector of features.
        """
        table = (shape[2], shape[2])
        what, entries, tables = "pairwise", pairwise, None
        tails: list[tuple[int, ...]] = [(), table]
        whole = tails
        nested = isinstance(pairwise, list | tuple) and any(isinstance(entry, list | tuple) for entry in pairwise)
        if isinstance(pairwise, Factored):
            what, entries = "the features of Factored", pairwise.features
            tables = to_numpy(pairwise.tables, "the tables of Factored")
            tails, whole = [tables.shape[:1]], []
        elif nested or not isinstance(pairwise, list | tuple):
            source = as_source(pairwise, what)
            if tuple(source.shape) not in whole:
                expected = f"a number, a table {table}, or one entry per step"
                raise InputError(f"pairwise has shape {tuple(source.shape)}, expected {expected}")
            return cls((np.asarray(source[()]),), steps, (False,), None, shared=True)
        names = [name_of(step) for step in steps]
        if not isinstance(entries, list | tuple) or len(entries) != len(steps):
            came = len(entries) if isinstance(entries, list | tuple) else "one array"
            raise InputError(f"{what} has {came} entries, expected one per step: {', '.join(names)}")
        sources, per_edge = [], []
        for entry, name, (down, across) in zip(entries, names, steps, strict=True):
            source = as_source(entry, f"{what} ({name})")
            edges = (max(0, shape[0] - down), max(0, shape[1] - abs(across)))
            shapes = [(*edges, *tail) for tail in tails]
            if tuple(source.shape) not in (*shapes, *whole):
                expected = " or ".join(map(str, (*shapes, *whole)))
                raise InputError(f"{what} ({name}) has shape {tuple(source.shape)}, expected {expected}")
            per_edge.append(tuple(source.shape) in shapes)
            sources.append(source if per_edge[-1] else np.asarray(source[()]))
        return cls(tuple(sources), steps, tuple(per_edge), tables, shared=False)

    def without_values(self) -> Self:
        """Return a copy without the sources, to be sent to a worker."""
        kept = (None if cut else entry for entry, cut in zip(self.entries, self.per_edge, strict=True))
        return replace(self, entries=tuple(kept))

    def pieces(self, window: Box) -> list[Any]:
        """Return the values of the edges inside a window, for each entry with values per edge."""
        found = []
        for entry, (down, across), cut in zip(self.entries, self.steps, self.per_edge, strict=False):
            if cut:
                rows = slice(window.top, max(window.top, window.bottom - down))
                columns = slice(window.left, max(window.left, window.right - abs(across)))
                found.append(piece_of(entry, (rows, columns)))
        return found

    def pairwise(self, values: Sequence[Any]) -> Any:
        """Return the pairwise term with the given values per edge."""
        rest = iter(values)
        entries = tuple(next(rest) if cut else entry for entry, cut in zip(self.entries, self.per_edge, strict=True))
        if self.tables is not None:
            return Factored(entries, self.tables)
        return entries[0] if self.shared else entries

    def least(self, shapes: Sequence[tuple[int, ...]], unread: float | None) -> list[Any]:
        """Return values per edge for edges of other shapes, filled with the smallest weight of each entry.

        ``unread`` replaces weights that are not in memory; None reads them. Tables count as ``unread``, or 0.
        """
        found = []
        for entry, shape, cut in zip(self.entries, shapes, self.per_edge, strict=False):
            if cut:
                weights = len(entry.shape) == 2
                known = weights and (unread is None or isinstance(entry, np.ndarray))
                value = _least(entry) if known else unread or 0.0
                found.append(np.full((*shape, *entry.shape[2:]), value, entry.dtype))
        return found

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of all entries and tables; entries for all edges do not depend on their dtype."""
        wide = (
            entry if cut else entry.astype(np.float64) for entry, cut in zip(self.entries, self.per_edge, strict=True)
        )
        return [fingerprint(entry) for entry in (*wide, *(() if self.tables is None else (self.tables,)))]


def _least(weights: Any) -> float:
    """Return the smallest of the weights (H, W), read a few rows at a time; 0 if there are none."""
    height, width = weights.shape
    if height * width == 0:
        return 0.0
    rows = max(1, BAND // width)
    return min(float(np.asarray(weights[top : top + rows]).min()) for top in range(0, height, rows))


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
