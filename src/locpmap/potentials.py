"""Potentials: a validated, frozen pairwise model, the only thing that inference sees.

Convention: scores are log-potentials and larger is better,
``θ(y) = Σ_i unary[i, y_i] + Σ_(i,j) pairwise[e, y_i, y_j]``, and ``p(y) ∝ exp θ(y)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import (
    Array,
    Restore,
    copy_if_small,
    frozen,
    is_tensor,
    namespace,
    place_beside,
    refuse_masked,
    to_float,
    to_labels,
    to_numpy,
)
from locpmap.errors import InputError
from locpmap.graphs import Graph, Grid, Steps
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import local_scores, total_scores
from locpmap.pairwise import Pairwise, parse_pairwise
from locpmap.views import View


@dataclass(frozen=True, eq=False)
class Potentials:
    """A pairwise model on a grid or a graph, for one image or a batch.  Made by :meth:`grid` or :meth:`graph`.

    Arrays are validated once and then read-only.  Those of up to 16 MB are copied; larger ones are shared with the
    caller (tensors on the CPU too), who must not change them until the results have been read.
    """

    structure: Grid | Graph
    unary: Any  # (N, S, L): a NumPy array, or a tensor on a GPU; then the pairwise term and the mask are there, too
    pairwise: Pairwise
    masked: Any  # None, or (1|N, S), True where a site takes no part
    batched: bool
    restore: Restore

    @classmethod
    def grid(
        cls,
        unary: Any,
        pairwise: Any,
        *,
        connectivity: int | Steps = 4,
        mask: Any = None,
        window: tuple[int, int, int] | None = None,
    ) -> Potentials:
        """Potentials on a grid.

        Args:
            unary: Scores (H, W, L) or (N, H, W, L), label axis last; ``-inf`` forbids a label.
            pairwise: A Potts weight (the score where labels agree), a table (L, L), one entry per direction
                (horizontal, vertical[, diagonal, antidiagonal]) of weights (.., H, W-1), (.., H-1, W), .. or of
                tables with (L, L) appended, or :class:`Factored`.
            connectivity: 4 or 8 neighbours, or steps to further ones (see :class:`locpmap.graphs.Grid`).
            mask: Booleans (H, W) or (N, H, W), True where a site is ignored: it gets label -1 and influences nothing.
            window: ``(row, column, full_width)`` where this grid is a window of a larger one.

        >>> import numpy as np
        >>> pot = Potentials.grid(np.zeros((2, 3, 4)), 1.0)
        >>> pot.score(np.zeros((2, 3), int))
        7.0
        """
        refuse_masked(unary, "unary")
        scores = to_float(unary, "unary")
        if scores.ndim not in (3, 4):
            raise InputError(f"unary has shape {tuple(scores.shape)}, expected (H, W, L) or (N, H, W, L)")
        if 0 in scores.shape:
            raise InputError(f"unary is empty: it has shape {scores.shape}, expected at least one of each")
        if window is not None and (np.shape(window) != (3,) or np.asarray(window).dtype.kind not in "iu"):
            raise InputError(f"window is {window!r}, expected whole numbers (row, column, full_width)")
        row, column, full_width = (0, 0, None) if window is None else (int(n) for n in window)
        height, width = scores.shape[-3:-1]
        structure = Grid(height, width, connectivity, row, column, full_width)
        return cls._build(structure, scores, pairwise, mask, scores.ndim == 4, Restore.like(unary))

    @classmethod
    def graph(cls, unary: Any, edges: Any, pairwise: Any, *, mask: Any = None) -> Potentials:
        """Potentials on any graph.

        Args:
            unary: Scores (S, L) or (N, S, L); ``-inf`` forbids a label.
            edges: Pairs of sites (E, 2), each edge once.
            pairwise: A Potts weight, weights (.., E), a table (L, L), tables (.., E, L, L) with the label of
                ``edges[:, 0]`` first, or :class:`Factored`.
            mask: Booleans (S,) or (N, S), True where a site is ignored.

        >>> import numpy as np
        >>> edges = [[0, 1], [1, 2], [2, 0]]
        >>> pot = Potentials.graph(np.zeros((3, 2)), edges, [1.0, 1.0, -2.0])
        >>> pot.score(np.array([0, 0, 1]))
        1.0
        """
        refuse_masked(unary, "unary")
        scores = to_float(unary, "unary")
        if scores.ndim not in (2, 3):
            raise InputError(f"unary has shape {tuple(scores.shape)}, expected (S, L) or (N, S, L)")
        if 0 in scores.shape:
            raise InputError(f"unary is empty: it has shape {scores.shape}, expected at least one of each")
        structure = edges if isinstance(edges, Graph) else Graph(scores.shape[-2], edges)
        if structure.n_sites != scores.shape[-2]:
            raise InputError(f"unary has {scores.shape[-2]} sites, expected the graph's {structure.n_sites}")
        return cls._build(structure, scores, pairwise, mask, scores.ndim == 3, Restore.like(unary))

    @classmethod
    def _build(
        cls, structure: Grid | Graph, scores: Array, pairwise: Any, mask: Any, batched: bool, restore: Restore
    ) -> Potentials:
        unary = scores.reshape(-1, structure.n_sites, scores.shape[-1])
        if len(unary) >= 2**28:
            raise InputError(f"unary holds {len(unary)} images, expected fewer than 2^28")
        if unary.shape[2] >= 2**15:
            raise InputError(f"unary has {unary.shape[2]} labels, expected fewer than 2^15")
        term = parse_pairwise(pairwise, structure, unary, batched)
        masked = None if mask is None else _parse_mask(mask, structure, unary)
        if masked is not None and masked.any():
            edges = structure.edges()
            dead = masked[:, edges[:, 0]] | masked[:, edges[:, 1]]
            term = term.without(dead, structure.direction_sizes)
            # An isolated site with one allowed label of score 0 changes no score and no log partition.
            xp = namespace(unary)
            alone = xp.zeros_like(unary[0, 0])
            alone[1:] = -np.inf
            unary = xp.where(masked[:, :, None], alone, unary)
        _check_unary(unary, structure, batched)
        return cls(structure, frozen(unary), term, masked, batched, restore)

    def __repr__(self) -> str:
        if isinstance(self.structure, Grid):
            where = f"grid {self.structure.height}×{self.structure.width}"
        else:
            where = f"graph of {self.n_sites} sites, {len(self.structure.edges())} edges"
        images = f"{self.n_images} images, " if self.batched else ""
        kind = "Potts weights" if self.pairwise.potts else "tables"
        return f"<Potentials: {images}{where}, {self.n_labels} labels, {kind}, {self.unary.dtype}>"

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: not the flat arrays, which are built from the rest."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays arrive writable; they become read-only again, which compiled kernels also rely on."""
        self.__dict__.update(state)
        self.__dict__.update(vars(self._changed(lambda array: array)))
        if isinstance(self.structure, Graph):
            self.__dict__["structure"] = Graph(self.structure.n_sites, self.structure.edges())

    @property
    def n_images(self) -> int:
        """Number of images (1 without a batch axis)."""
        return int(self.unary.shape[0])

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return int(self.unary.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.unary.shape[2])

    @cached_property
    def forbids_pairs(self) -> bool:
        """Whether a pairwise table holds -inf, so that a labelling of allowed labels may still be forbidden."""
        tables = self.pairwise.tables
        return tables is not None and 0 not in tables.shape and float(tables.min()) == -np.inf

    @cached_property
    def view(self) -> View:
        """The model as kernels see it."""
        return View(self.unary, self.pairwise, self.structure)

    @property
    def model(self) -> Model:
        """The flat arrays that general kernels read; built when first needed."""
        return self.view.flat

    def to(self, device: str | None) -> Potentials:
        """The same with its arrays on a GPU ("cuda": that they are on, or torch's current one) or in NumPy (None)."""
        if device == (self.unary.device.type if is_tensor(self.unary) else None):
            return self
        return self._changed(Restore(device))

    def part(self, images: slice) -> Potentials:
        """Some images of a batch; what all images share stays shared."""
        return self._changed(lambda array: array if len(array) == 1 else array[images])

    def _changed(self, change: Callable[[Any], Any]) -> Potentials:
        """The same with every array changed."""

        def new(array: Any) -> Any:
            return None if array is None else frozen(change(array))

        term = self.pairwise
        weights = None if term.weights is None else tuple(new(weight) for weight in term.weights)
        pairwise = replace(term, weights=weights, features=new(term.features), tables=new(term.tables))
        return replace(self, unary=new(self.unary), pairwise=pairwise, masked=new(self.masked))

    def score(self, labels: Any) -> Any:
        """θ(y): a float, or (N,) for a batch.  ``labels`` has the shape of the result's labels."""
        host = self.to(None)
        totals = total_scores(host.model, self.flat_labels(labels))
        return self.restore(totals) if self.batched else float(totals[0])

    def local_scores(self, labels: Any) -> Any:
        """The score of every label at every site with all other sites held, up to a constant per site; (.., L)."""
        return self.restore(self.unflatten(local_scores(self.to(None).model, self.flat_labels(labels))))

    def flat_labels(self, labels: Any, name: str = "labels") -> npt.NDArray[np.int64]:
        """Validated labels as (N, S); masked sites become 0, their only label."""
        array = to_labels(labels, name)
        expected = ((self.n_images,) if self.batched else ()) + self.structure.shape
        if array.shape != expected:
            raise InputError(f"{name} has shape {array.shape}, expected {expected}")
        flat = array.reshape(self.n_images, self.n_sites)
        if self.masked is not None:
            flat = np.where(Restore()(self.masked), 0, flat)
        if flat.min() < 0 or flat.max() >= self.n_labels:
            raise InputError(f"{name} runs from {flat.min()} to {flat.max()}, expected 0 to {self.n_labels - 1}")
        return flat

    def unflatten(self, values: Any) -> Any:
        """(N, S, ...) back to the caller's axes: batch (if any), then sites, then the rest."""
        batch = (self.n_images,) if self.batched else ()
        return values.reshape(*batch, *self.structure.shape, *values.shape[2:])


def _parse_mask(mask: Any, structure: Grid | Graph, unary: Any) -> Any:
    array, n_images = to_numpy(mask, "mask"), len(unary)
    if array.dtype != np.bool_:
        raise InputError(f"mask has dtype {array.dtype}, expected booleans (True where a site is ignored)")
    if array.shape not in (structure.shape, (n_images, *structure.shape)):
        raise InputError(f"mask has shape {array.shape}, expected {structure.shape} with or without a batch axis")
    masked = array.reshape(-1, structure.n_sites)
    if masked.all(axis=1).any():
        raise InputError("mask ignores every site of an image, expected at least one that takes part")
    return place_beside(unary, frozen(copy_if_small(masked)))


def _check_unary(unary: Any, structure: Grid | Graph, batched: bool) -> None:
    """NaN and +inf show in the largest score of a site; -inf there means that no label is left."""
    xp = namespace(unary)
    if xp.isfinite(unary.min()) and xp.isfinite(unary.max()):  # quick, and nearly always so
        return
    best = xp.amax(unary, 2)
    if xp.isfinite(best).all():
        return
    image, site = (int(i) for i in xp.argwhere(~xp.isfinite(best))[0])
    where = tuple(int(i) for i in np.unravel_index(site, structure.shape))
    at = f"[{', '.join(str(i) for i in ((image,) if batched else ()) + where)}]"
    if best[image, site] == -np.inf:
        raise InputError(f"unary{at} is -inf for every label, expected at least one allowed label")
    raise InputError(f"unary{at} contains {float(best[image, site])}, expected finite numbers or -inf")
