"""Pairwise terms of a raster, with values per edge read window by window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from locpmap.arrays import to_numpy
from locpmap.errors import InputError
from locpmap.graphs import Steps
from locpmap.graphs.grid import name_of
from locpmap.pairwise import Factored
from locpmap.scale.box import Box
from locpmap.scale.sources import as_source, fingerprint, piece_of

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

    def least(self, shapes: Sequence[tuple[int, int]], unread: float | None) -> list[Any]:
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
