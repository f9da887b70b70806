"""Models of a raster or a volume whose potentials are built window by window, with values per edge read likewise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from locpmap.arrays import refuse_masked, to_numpy
from locpmap.errors import InputError
from locpmap.graphs import Grid, Volume, box_of
from locpmap.graphs.grid import name_of
from locpmap.pairwise import Factored
from locpmap.potentials import Potentials
from locpmap.scale.sources import as_mask, as_source, fingerprint, piece_of
from locpmap.scale.tiling import Box

BAND = 2**22  # weights read at a time


@dataclass(frozen=True, eq=False)
class Terms:
    """A pairwise term in any form of :meth:`locpmap.Potentials.grid` or :meth:`locpmap.Potentials.volume`."""

    entries: tuple[Any, ...]  # one for all edges, or one per step
    steps: tuple[tuple[int, ...], ...]
    per_edge: tuple[bool, ...]  # whether an entry is a source with a value for every edge of the raster
    tables: Any  # of Factored, otherwise None
    shared: bool  # whether there is one entry for all edges

    @classmethod
    def parse(cls, pairwise: Any, shape: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> Self:
        """Check a pairwise term by its shapes, without reading values per edge.

        An entry has one value per edge (shape: edges + one of ``tails``) or one value for all edges (a shape in
        ``whole``).  A value is a number, a table or a vector of features.
        """
        *size, n_labels = shape
        table = (n_labels, n_labels)
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
        for entry, name, step in zip(entries, names, steps, strict=True):
            source = as_source(entry, f"{what} ({name})")
            edges = tuple(max(0, n - abs(by)) for n, by in zip(size, step, strict=True))
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
        for entry, (down, across, *_), cut in zip(self.entries, self.steps, self.per_edge, strict=False):
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
                weights = len(entry.shape) == len(shape)
                known = weights and (unread is None or isinstance(entry, np.ndarray))
                value = _least(entry) if known else unread or 0.0
                found.append(np.full((*shape, *entry.shape[len(shape) :]), value, entry.dtype))
        return found

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of all entries and tables; entries for all edges do not depend on their dtype."""
        wide = (
            entry if cut else entry.astype(np.float64) for entry, cut in zip(self.entries, self.per_edge, strict=True)
        )
        return [fingerprint(entry) for entry in (*wide, *(() if self.tables is None else (self.tables,)))]


def _least(weights: Any) -> float:
    """Return the smallest of the weights, read a few rows or planes at a time; 0 if there are none."""
    if math.prod(weights.shape) == 0:
        return 0.0
    rows = max(1, BAND // math.prod(weights.shape[1:]))
    return min(float(np.asarray(weights[top : top + rows]).min()) for top in range(0, weights.shape[0], rows))


class Builder(Protocol):
    """A function that builds the potentials of a window from its pieces; small, since it is sent with every tile."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, columns and labels of the raster, or planes, rows, columns and labels of the volume."""

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
    """The builder of a grid or a volume: potentials of a window from unaries and pairwise terms."""

    shape: tuple[int, ...]
    dtype: Any
    connectivity: Any
    spacing: Any
    terms: Terms

    def __call__(self, window: Box, mask: Any, *pieces: Any) -> Potentials:
        """Build the potentials from the unaries and from each pairwise term that has a value per edge."""
        unary, *edges = pieces
        _, *across, _ = self.shape
        whole = (0,) if len(across) == 2 else ()  # the first column of a window in a volume
        return self.build(unary, edges, mask=mask, window=(window.top, window.left, *whole, *across))

    def build(self, unary: Any, edges: Sequence[Any], **how: Any) -> Potentials:
        """Build potentials from unaries and values per edge; ``how`` are options of `Potentials.grid`."""
        *size, _ = self.shape
        pairwise, how = self.terms.pairwise(edges), {"connectivity": self.connectivity, **how}
        if len(size) == 2:
            return as_window(Potentials.grid(unary, pairwise, **how), *size)
        return as_window(Potentials.volume(unary, pairwise, spacing=self.spacing, **how), *size)


def as_window(potentials: Potentials, *size: int) -> Potentials:
    """Return potentials on a window of a grid or volume of the given size, or larger if it does not fit into it."""
    box = potentials.structure
    assert isinstance(box, Grid | Volume)
    full = (max(n, start + own) for n, start, own in zip(size, box.corner, box.shape, strict=True))
    names = ("full_depth", "full_height", "full_width") if isinstance(box, Volume) else ("full_height", "full_width")
    larger: dict[str, Any] = dict(zip(names, full, strict=True))
    return replace(potentials, structure=replace(box, **larger))


@dataclass(frozen=True, eq=False)
class GridModel:
    """The unaries and pairwise terms of a grid or a volume, in sources that may exceed the memory."""

    unary: Any
    terms: Terms
    mask: Any
    connectivity: Any
    spacing: Any = None

    @classmethod
    def parse(cls, unary: Any, pairwise: Any, mask: Any, connectivity: Any, spacing: Any = None) -> Self:
        """Check the arguments by shape and dtype, without reading sources, and return the model."""
        refuse_masked(unary, "unary")
        scores = as_source(unary, "unary")
        if len(scores.shape) not in (3, 4):
            raise InputError(f"unary has shape {tuple(scores.shape)}, expected (H, W, L) or (D, H, W, L)")
        if 0 in scores.shape:
            raise InputError(f"unary is empty: it has shape {tuple(scores.shape)}, expected at least one of each")
        *size, n_labels = (int(n) for n in scores.shape)
        mask = as_mask(mask, tuple(size), unary=scores)
        if spacing is not None and len(size) == 2:
            raise InputError(f"spacing is {spacing!r} and unary has shape {tuple(scores.shape)}, expected a volume")
        if connectivity is None:
            connectivity = 4 if len(size) == 2 else 6
        box: Any = box_of((1,) * len(size), connectivity)
        return cls(scores, Terms.parse(pairwise, (*size, n_labels), box.steps), mask, box.connectivity, spacing)

    @property
    def builder(self) -> GridBuilder:
        """The builder, in single precision for half and single precision unaries, otherwise in double precision."""
        shape = tuple(int(n) for n in self.unary.shape)
        dtype = np.dtype(np.float32 if self.unary.dtype in (np.float16, np.float32) else np.float64)
        return GridBuilder(shape, dtype, self.connectivity, self.spacing, self.terms.without_values())

    def pieces(self, window: Box) -> list[Any]:
        """Return the mask, the unaries, and each pairwise term that has a value per edge."""
        mask = None if self.mask is None else piece_of(self.mask, window.slices)
        return [mask, piece_of(self.unary, window.slices), *self.terms.pieces(window)]

    def example(self, unread: float | None) -> Potentials:
        """Return a model of two sites along each axis with the smallest weights."""
        *size, n_labels = self.builder.shape
        box = box_of((2,) * len(size), self.connectivity)
        unary = np.zeros((*box.shape, n_labels), self.builder.dtype)
        return self.builder.build(unary, self.terms.least(box.direction_shapes, unread))

    def identity(self) -> dict[str, Any]:
        """Return the shape, the dtype, the connectivity, and fingerprints of all sources."""
        return {
            "shape": list(self.builder.shape),
            "dtype": str(self.builder.dtype),
            "connectivity": self.connectivity,
            "spacing": self.spacing,
            "unary": fingerprint(self.unary),
            "pairwise": self.terms.fingerprints(),
            "mask": None if self.mask is None else fingerprint(self.mask),
        }
