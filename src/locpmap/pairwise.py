"""Pairwise terms: all accepted forms, converted to Potts weights or to features times tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from locpmap.arrays import Array, cast, extremes, frozen, is_tensor, namespace, place_like, to_float
from locpmap.errors import InputError
from locpmap.graphs import Box, Graph
from locpmap.graphs.grid import name_of


@dataclass(frozen=True, eq=False)
class Factored:
    """Pairwise term in factored form: features of the edges times shared tables.

    Edge e has the table ``Σ_f features[e, f] · tables[f]``, which is never stored.  Memory is that of the features and
    the F tables, instead of one table (L, L) per edge.

    Args:
        features (array or sequence of arrays): Features of every edge.  On a graph: (E, F) or (N, E, F).  On a grid:
            a tuple or list with one array per step, (H, W-1, F) for horizontal and (H-1, W, F) for vertical edges, each
            with or without a leading batch axis.
        tables (array): Tables (F, L, L) with F of at least 1, shared by all edges and images.

    Notes:
        Features and tables are finite.  To forbid pairs of labels by ``-inf``, pass tables without features.  Both
        arrays are validated by :meth:`Potentials.grid`, :meth:`Potentials.volume` and :meth:`Potentials.graph`.

    Example:
        >>> contrast = np.array([0.0, 3.0])  # of the two edges of a chain of three sites
        >>> features = np.stack([np.ones(2), contrast], axis=1)  # (E, F)
        >>> tables = np.stack([np.eye(2), 0.5 * (1 - np.eye(2))])  # reward agreement, and changes at high contrast
        >>> pot = lp.Potentials.graph(np.zeros((3, 2)), [[0, 1], [1, 2]], lp.Factored(features, tables))
        >>> pot.score([0, 0, 1])  # 1 for the first edge, 3 · 0.5 for the second
        2.5

    See Also:
        :meth:`Potentials.grid`, :meth:`Potentials.volume`, :meth:`Potentials.graph`: All other forms of pairwise terms.
    """

    features: Any
    tables: Any


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Validated pairwise term: ``weights`` for Potts models, ``features`` and ``tables`` for all others.

    Axes of length 1 are shared by all images or all edges.
    """

    n_labels: int
    weights: tuple[Array, ...] | None = None  # one (1|N, 1|E_d) per step d
    features: Array | None = None  # (1|N, 1|E, F)
    tables: Array | None = None  # (1|N, 1|E, F, L, L)
    whole_least: float | None = None  # smallest Potts weight of the raster or batch of which this is a part

    @property
    def potts(self) -> bool:
        """Whether the score is a weight for equal labels and 0 for different labels."""
        return self.weights is not None

    @cached_property
    def least_weight(self) -> float:
        """Smallest Potts weight of the whole raster or batch; NaN unless the model is Potts."""
        if self.weights is None:
            return float("nan")
        if self.whole_least is not None:
            return self.whole_least
        return min((float(w.min()) for w in self.weights if 0 not in w.shape), default=np.inf)

    @cached_property
    def coupled(self) -> bool:
        """Whether neighbours influence each other: False if all weights of a Potts model are 0."""
        return self.weights is None or any(bool((w != 0).any()) for w in self.weights)

    def flat(self, direction_sizes: Sequence[int]) -> tuple[Array, Array]:
        """Return ``features`` and ``tables`` of :class:`locpmap.kernels.Model`; NumPy arrays in double precision."""
        if self.weights is None:
            assert self.features is not None and self.tables is not None
            return _double(self.features), _double(self.tables)
        first = self.weights[0]
        if all(w.shape == (1, 1) and w[0, 0] == first[0, 0] for w in self.weights):
            features = first[:, :, None]
        else:
            features = _join([w[:, :, None] for w in self.weights], direction_sizes)
        return _double(features), frozen(place_like(features, np.eye(self.n_labels)[None, None, None]))

    def scaled(self, factors: Sequence[float], direction_sizes: Sequence[int]) -> Self:
        """Return the term with the scores of each step multiplied by a factor above 0."""
        if self.weights is not None:
            pairs = zip(self.weights, factors, strict=True)
            scaled = (frozen(w * (f if is_tensor(w) else w.dtype.type(f))) for w, f in pairs)
            return replace(self, weights=tuple(scaled))
        assert self.features is not None
        xp, n_edges, n_tables = namespace(self.features), sum(direction_sizes), self.features.shape[2]
        full = xp.broadcast_to(self.features, (len(self.features), n_edges, n_tables))
        of_edge = place_like(full, np.repeat(np.asarray(factors), direction_sizes))
        return replace(self, features=frozen(full * cast(of_edge, full.dtype)[:, None]))

    def without(self, dead: Array, direction_sizes: Sequence[int]) -> Self:
        """Return the term with score 0 on the edges marked in ``dead`` (1|N, E)."""
        if self.weights is not None:
            ends = np.cumsum(direction_sizes).tolist()
            parts = [dead[:, end - size : end] for size, end in zip(direction_sizes, ends, strict=True)]
            cut = (frozen(w * ~part) for part, w in zip(parts, self.weights, strict=True))
            return replace(self, weights=tuple(cut))
        assert self.features is not None and self.tables is not None
        xp = namespace(self.tables)
        if xp.isfinite(self.tables).all():
            return replace(self, features=frozen(self.features * ~dead[:, :, None]))
        # 0 · -inf is NaN, so zero the tables instead of the features.
        tables = xp.where(dead[:, :, None, None, None], 0.0, self.tables)
        return replace(self, tables=frozen(tables))


def parse_pairwise(value: Any, graph: Box | Graph, unary: Any, batched: bool) -> Pairwise:
    """Return the validated term on the device of the unaries, or raise with the accepted shapes."""
    parse = _Parser(graph, unary, batched)
    if isinstance(value, Factored):
        return parse.factored(value)
    # A nested list is a table.  A sequence of arrays or numbers has one entry per step.
    nested = isinstance(value, tuple | list) and any(isinstance(entry, tuple | list) for entry in value)
    if isinstance(graph, Box) and isinstance(value, tuple | list) and not nested:
        return parse.directions(value)
    return parse.single(value)


class _Parser:
    def __init__(self, graph: Box | Graph, unary: Any, batched: bool) -> None:
        self.n_images, self.n_labels, self.batched = len(unary), int(unary.shape[2]), batched
        self.like = unary
        self.table = (self.n_labels, self.n_labels)
        self.names = tuple(map(name_of, graph.steps)) if isinstance(graph, Box) else ("",)
        self.shapes: tuple[tuple[int, ...], ...] = graph.direction_shapes
        self.sizes = graph.direction_sizes
        self.on_grid = isinstance(graph, Box)

    def single(self, value: Any) -> Pairwise:
        """Parse a scalar, a table for all edges or, on a graph, values per edge."""
        array = to_float(value, "pairwise", self.like)
        if array.ndim == 0:
            return self._potts([array.reshape(1, 1)] * len(self.shapes))
        shared = array.shape == self.table
        per_edge = None if self.on_grid else self._per_edge(array, self.shapes[0])
        if shared and per_edge is not None and array.ndim == 2:
            raise InputError(
                f"pairwise has shape {tuple(array.shape)}, which could be one table or a weight per image and edge:"
                f" pass the table as np.broadcast_to(table, (E, L, L))"
            )
        if shared:
            return self._tables(array[None, None, None])
        if per_edge is None:
            raise InputError(f"pairwise has shape {tuple(array.shape)}, expected {self._expected()}")
        return self._potts([per_edge]) if per_edge.ndim == 2 else self._tables(per_edge[:, :, None])

    def directions(self, values: Sequence[Any]) -> Pairwise:
        """Parse one entry per step of a grid, each a scalar, a table, or values per edge."""
        self._count(values, "pairwise")
        arrays = [to_float(v, f"pairwise ({name})", self.like) for v, name in zip(values, self.names, strict=True)]
        found = [self._per_edge(a, s) for a, s in zip(arrays, self.shapes, strict=True)]
        if all(a.ndim == 0 or (f is not None and f.ndim == 2) for a, f in zip(arrays, found, strict=True)):
            return self._potts([a.reshape(1, 1) if f is None else f for a, f in zip(arrays, found, strict=True)])
        if all(f is not None and f.ndim == 4 for f in found):
            return self._tables(_join([f[:, :, None] for f in found if f is not None], self.sizes))
        if all(a.shape == self.table for a in arrays):
            return self._direction_tables(namespace(self.like).stack(arrays))
        came = ", ".join(f"{name} {tuple(a.shape)}" for name, a in zip(self.names, arrays, strict=True))
        raise InputError(f"pairwise has shapes {came}, expected {self._expected()}")

    def factored(self, value: Factored) -> Pairwise:
        """Parse features per edge times tables."""
        tables = to_float(value.tables, "pairwise tables", self.like)
        if tables.ndim != 3 or tables.shape[1:] != self.table or not len(tables):
            raise InputError(
                f"the tables of Factored have shape {tuple(tables.shape)},"
                f" expected (F, {self.n_labels}, {self.n_labels}) with at least one table"
            )
        given = value.features if self.on_grid and not is_tensor(value.features) else (value.features,)
        self._count(given, "the features of Factored")
        parts = []
        for item, name, shape in zip(given, self.names, self.shapes, strict=True):
            what = f"the features of Factored ({name})" if name else "the features of Factored"
            array = to_float(item, what, self.like)
            end = (*shape, len(tables))
            if array.shape not in (end, (self.n_images, *end)) or (array.ndim > len(end) and not self.batched):
                raise InputError(f"{what} has shape {tuple(array.shape)}, expected (.., {_csv(end)})")
            images = len(array) if array.ndim > len(end) else 1
            parts.append(array.reshape(images, int(np.prod(shape)), len(tables)))
        features = _join(parts, self.sizes)
        _refuse([features], "the features of Factored", -np.inf)
        _refuse([tables], "the tables of Factored", -np.inf)
        return Pairwise(self.n_labels, features=frozen(features), tables=frozen(tables[None, None]))

    def _per_edge(self, array: Array, shape: tuple[int, ...]) -> Array | None:
        """Return values per edge as weights (1|N, E) or tables (1|N, E, L, L); None if the array has another shape."""
        size = int(np.prod(shape))
        for tail in ((), self.table):
            if array.shape == (*shape, *tail):
                return array.reshape(1, size, *tail)
            if self.batched and array.shape == (self.n_images, *shape, *tail):
                return array.reshape(self.n_images, size, *tail)
        return None

    def _potts(self, weights: list[Array]) -> Pairwise:
        least, greatest = _refuse(weights, "pairwise (a Potts weight)", -np.inf)
        term = Pairwise(self.n_labels, weights=tuple(frozen(w) for w in weights))
        term.__dict__.update(least_weight=least, coupled=least < 0 or greatest > 0)  # already read from the device
        return term

    def _tables(self, tables: Array) -> Pairwise:
        _refuse([tables], "pairwise")
        ones = to_float(np.ones((1, 1, 1)), "features", self.like)
        return Pairwise(self.n_labels, features=frozen(ones), tables=frozen(tables))

    def _direction_tables(self, tables: Array) -> Pairwise:
        """Build a term with one table per step, by indicator features unless a table has -inf."""
        which = np.repeat(np.arange(len(tables)), self.sizes)
        if not namespace(tables).isfinite(tables).all():
            return self._tables(tables[which][None, :, None])
        features = to_float(np.eye(len(tables))[which][None], "features", self.like)
        return Pairwise(self.n_labels, features=frozen(features), tables=frozen(tables[None, None]))

    def _count(self, values: Any, what: str) -> None:
        if not isinstance(values, tuple | list) or len(values) != len(self.shapes):
            came = len(values) if isinstance(values, tuple | list) else "one array"
            raise InputError(f"{what} has {came} entries, expected one per step: {', '.join(self.names)}")

    def _expected(self) -> str:
        table = f"a table ({_csv(self.table)})"
        if not self.on_grid:
            (n_edges,) = self.shapes[0]
            return f"a scalar, {table}, or values per edge (.., {n_edges}) or (.., {n_edges}, {_csv(self.table)})"
        sizes = " and ".join(f"(.., {_csv(shape)})" for shape in self.shapes)
        tail = _csv(self.table)
        return f"a scalar, {table}, or one entry per step: weights {sizes}, or tables with ({tail}) appended"


def _csv(shape: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in shape)


def _join(parts: list[Array], sizes: Sequence[int]) -> Array:
    """Concatenate the arrays of all steps along the edge axis, with a common image axis."""
    images = max(part.shape[0] for part in parts)
    xp = namespace(parts[0])
    full = [xp.broadcast_to(p, (images, n, *p.shape[2:])) for p, n in zip(parts, sizes, strict=True)]
    return xp.concatenate(full, axis=1)


def _double(array: Array) -> Array:
    """Return the array in double precision, or a tensor as it is."""
    return frozen(array if is_tensor(array) else array.astype(np.float64))


def _refuse(arrays: list[Array], name: str, forbidden: float | None = None) -> tuple[float, float]:
    """Raise on NaN and +inf, and on ``forbidden`` if given; return the smallest and largest value, or inf and -inf."""
    ends = [end for pair in extremes(*(array for array in arrays if 0 not in array.shape)) for end in pair]
    for value in ends:
        if np.isnan(value) or value == np.inf or value == forbidden:
            wanted = "finite numbers or -inf" if forbidden is None else "finite numbers"
            raise InputError(f"{name} contains {value}, expected {wanted}")
    return min(ends, default=np.inf), max(ends, default=-np.inf)
