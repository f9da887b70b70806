"""Potentials: a validated, immutable pairwise model, the input of every decoder.

A labelling y has the score ``θ(y) = Σ_i unary[i, y_i] + Σ_(i,j) pairwise[e, y_i, y_j]`` and the probability
``p(y) ∝ exp θ(y)``.  Scores are log-potentials: larger is better.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Array, Restore, extremes, frozen, is_tensor, namespace, to_labels
from locpmap.errors import InputError
from locpmap.graphs import Box, Graph, Grid, Steps, Volume
from locpmap.kernels.cpu.sampling import links_of
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import local_scores, total_scores, volume_scores
from locpmap.pairwise import Pairwise, parse_pairwise
from locpmap.unaries import check_unary, check_window, dead_edges, parse_mask, parse_unary, read_spacing, step_factors
from locpmap.views import View


@dataclass(frozen=True, eq=False)
class Potentials:
    """Pairwise model on a grid, a volume or a graph, for one image or a batch.

    Create potentials with :meth:`grid`, :meth:`volume` or :meth:`graph`, which validate all arrays.  Arrays are NumPy
    arrays or torch tensors, and results have the same kind.

    Attributes:
        structure (Grid, Volume or Graph): Sites and edges.
        unary (array): Scores (N, S, L): a NumPy array, or a tensor on the GPU of the input.
        pairwise (Pairwise): Validated pairwise term, on the same device.
        masked (array or None): Booleans (1 or N, S), True at ignored sites.
        batched (bool): Whether the input had a batch axis.
        restore (Restore): Conversion of results to the caller's kind of array.

    Notes:
        Arrays of up to 16 MB are copied.  Larger arrays, including tensors on the CPU, are shared with the caller, who
        must not change them until the results have been read.
    """

    structure: Box | Graph
    unary: Any  # (N, S, L)
    pairwise: Pairwise
    masked: Any  # None or (1|N, S)
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
    ) -> Self:
        """Create potentials on a grid.

        Args:
            unary (array): Scores (H, W, L) or (N, H, W, L) of fewer than 2^15 labels.  ``-inf`` forbids a label;
                every site needs an allowed one.
            pairwise (float, array, sequence or Factored): Scores of pairs of neighbouring labels, in one of these
                forms.

                - A float: Potts weight, the score of an edge whose two labels are equal.
                - A table (L, L), shared by all edges, also as a nested list.  The first axis is the label of the upper
                  site, or of the left site if both are in one row.
                - A tuple or list with one entry per step: horizontal, vertical and, with 8 neighbours, diagonal and
                  antidiagonal.  All entries are Potts weights (floats or arrays), or all are tables (L, L), or all are
                  arrays of tables.
                - :class:`Factored`: features of the edges times tables.

                Arrays of weights have one value per edge: (H, W-1), (H-1, W), (H-1, W-1) and (H-1, W-1).  Arrays of
                tables have (L, L) appended.  Both may have a leading batch axis if ``unary`` has one.  Weights are
                finite; tables may contain ``-inf``, which forbids a pair of labels.
            connectivity (int or tuple, default 4): 4 or 8 neighbours, or steps to further neighbours as in
                :class:`locpmap.graphs.Grid`.
            mask (array, default None): Booleans (H, W) or (N, H, W), True at sites to ignore.  An ignored site gets
                label -1 and has no influence on other sites.  At least one site per image is not ignored.
            window (tuple of int, default None): ``(row, column, full_width)`` if this grid is a window of a larger
                grid: the position of its upper left site, and the width of the larger grid, at least ``column + W``.
                Noise and colour classes then equal those of the larger grid.

        Returns:
            Potentials: The validated model.

        Raises:
            InputError: If a shape or a value is invalid.

        Example:
            >>> pot = lp.Potentials.grid(np.zeros((2, 3, 4)), 1.0)
            >>> pot
            <Potentials: grid 2×3, 4 labels, Potts weights, float64>
            >>> pot.score(np.zeros((2, 3), int))
            7.0

        See Also:
            :func:`infer`, :class:`Factored`
        """
        scores = parse_unary(unary, ("H", "W"))
        corner_and_width = check_window(window, ("row", "column", "full_width"))
        height, width = scores.shape[-3:-1]
        structure = Grid(height, width, connectivity, *corner_and_width)
        return cls._build(structure, scores, pairwise, mask, Restore.like(unary))

    @classmethod
    def volume(
        cls,
        unary: Any,
        pairwise: Any,
        *,
        spacing: float | tuple[float, ...] | None = None,
        connectivity: int = 6,
        mask: Any = None,
        window: tuple[int, int, int, int, int] | None = None,
    ) -> Self:
        """Create potentials on a volume.

        Args:
            unary (array): Scores (D, H, W, L) or (N, D, H, W, L), as for :meth:`grid`.
            pairwise (float, array, sequence or Factored): Scores of pairs of neighbouring labels, in the forms of
                :meth:`grid`.  A sequence has one entry per step: (0, 0, 1), (0, 1, 0), (1, 0, 0) and, with 26
                neighbours, the ten diagonal steps of :class:`locpmap.graphs.Volume`.  Arrays of weights have one value
                per edge: (D, H, W-1), (D, H-1, W), (D-1, H, W) and so on.
            spacing (float or tuple of float, default None): Distances (dz, dy, dx) of neighbouring planes, rows and
                columns, or one number for cubes.
                The scores of the edges with step (z, y, x) are multiplied by
                ``min(spacing) / sqrt((z·dz)² + (y·dy)² + (x·dx)²)``.  Without it, all factors are 1.
                :func:`measure` computes volumes and surfaces in its units.
            connectivity (int, default 6): 6 or 26 neighbours.
            mask (array, default None): Booleans (D, H, W) or (N, D, H, W), True at sites to ignore.
            window (tuple of int, default None): ``(plane, row, column, full_height, full_width)`` if this volume is a
                window of a larger volume: the position of its first site, and the size of the larger volume's planes.

        Returns:
            Potentials: The validated model.

        Raises:
            InputError: If a shape or a value is invalid.

        Example:
            >>> pot = lp.Potentials.volume(np.zeros((2, 3, 4, 2)), 1.0, spacing=(2.0, 1.0, 1.0))
            >>> pot
            <Potentials: volume 2×3×4, 2 labels, Potts weights, float64>
            >>> pot.score(np.zeros((2, 3, 4), int))  # 34 edges within planes, and 12 of half the weight between them
            40.0

        See Also:
            :meth:`grid`, :func:`infer`, :class:`Factored`
        """
        scores = parse_unary(unary, ("D", "H", "W"))
        place = check_window(window, ("plane", "row", "column", "full_height", "full_width"))
        depth, height, width = scores.shape[-4:-1]
        structure, factors = Volume(depth, height, width, connectivity, *place), None
        if spacing is not None:
            sides = read_spacing(spacing)
            structure, factors = replace(structure, spacing=sides), step_factors(sides, structure)
        return cls._build(structure, scores, pairwise, mask, Restore.like(unary), factors)

    @classmethod
    def graph(cls, unary: Any, edges: Any, pairwise: Any, *, mask: Any = None) -> Self:
        """Create potentials on any graph.

        Args:
            unary (array): Scores (S, L) or (N, S, L) of fewer than 2^15 labels.  ``-inf`` forbids a label; every site
                needs an allowed one.
            edges (array or Graph): Pairs of sites (E, 2), each edge once.
            pairwise (float, array or Factored): Scores of pairs of neighbouring labels, in one of these forms.

                - A float: Potts weight, the score of an edge whose two labels are equal.
                - Potts weights (E,) or (N, E).
                - A table (L, L), shared by all edges.  The first axis is the label of ``edges[:, 0]``.  If the shape
                  (L, L) is also (N, E), pass ``np.broadcast_to(table, (E, L, L))``.
                - Tables (E, L, L) or (N, E, L, L).
                - :class:`Factored`: features of the edges times tables.

                Weights are finite; tables may contain ``-inf``, which forbids a pair of labels.
            mask (array, default None): Booleans (S,) or (N, S), True at sites to ignore.

        Returns:
            Potentials: The validated model.

        Raises:
            InputError: If a shape or a value is invalid.

        Example:
            >>> edges = [[0, 1], [1, 2], [2, 0]]
            >>> pot = lp.Potentials.graph(np.zeros((3, 2)), edges, [1.0, 1.0, -2.0])
            >>> pot.score(np.array([0, 0, 1]))
            1.0

        See Also:
            :func:`infer`, :class:`Factored`
        """
        scores = parse_unary(unary, ("S",))
        structure = edges if isinstance(edges, Graph) else Graph(scores.shape[-2], edges)
        if structure.n_sites != scores.shape[-2]:
            raise InputError(f"unary has {scores.shape[-2]} sites, expected the graph's {structure.n_sites}")
        return cls._build(structure, scores, pairwise, mask, Restore.like(unary))

    @classmethod
    def _build(
        cls,
        structure: Box | Graph,
        scores: Array,
        pairwise: Any,
        mask: Any,
        restore: Restore,
        factors: list[float] | None = None,
    ) -> Self:
        batched = scores.ndim == len(structure.shape) + 2
        unary = scores.reshape(-1, structure.n_sites, scores.shape[-1])
        if len(unary) >= 2**28:
            raise InputError(f"unary has {len(unary)} images, expected fewer than 2^28")
        if unary.shape[2] >= 2**15:
            raise InputError(f"unary has {unary.shape[2]} labels, expected fewer than 2^15")
        term = parse_pairwise(pairwise, structure, unary, batched)
        if factors is not None:
            term = term.scaled(factors, structure.direction_sizes)
        masked = None if mask is None else parse_mask(mask, structure, unary)
        if masked is not None and masked.any():
            term = term.without(dead_edges(structure, masked), structure.direction_sizes)
            # An isolated site with one allowed label of score 0 changes no score and no log partition.
            xp = namespace(unary)
            alone = xp.zeros_like(unary[0, 0])
            alone[1:] = -np.inf
            unary = xp.where(masked[:, :, None], alone, unary)
        least = check_unary(unary, structure, batched)
        found = cls(structure, frozen(unary), term, masked, batched, restore)
        found.__dict__["forbids_labels"] = least == -np.inf  # already read from the device
        return found

    def __repr__(self) -> str:
        if isinstance(self.structure, Box):
            where = f"{type(self.structure).__name__.lower()} {'×'.join(map(str, self.structure.shape))}"
        else:
            where = f"graph of {self.n_sites} sites, {len(self.structure.edges())} edges"
        images = f"{self.n_images} images, " if self.batched else ""
        kind = "Potts weights" if self.pairwise.potts else "tables"
        return f"<Potentials: {images}{where}, {self.n_labels} labels, {kind}, {self.unary.dtype}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for another process, without cached arrays."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make received arrays read-only again, as compiled kernels expect."""
        self.__dict__.update(state)
        self.__dict__.update(vars(self._changed(lambda array: array)))
        if isinstance(self.structure, Graph):
            self.__dict__["structure"] = Graph(self.structure.n_sites, self.structure.edges())

    @property
    def n_images(self) -> int:
        """Number of images; 1 without a batch axis."""
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
    def forbids_labels(self) -> bool:
        """Whether a unary score is -inf, as those of masked sites are."""
        return extremes(self.unary)[0][0] == -np.inf

    @cached_property
    def forbids_pairs(self) -> bool:
        """Whether a pairwise table contains -inf.  Then a labelling of allowed labels may still have score -inf."""
        tables = self.pairwise.tables
        return tables is not None and 0 not in tables.shape and float(tables.min()) == -np.inf

    @cached_property
    def view(self) -> View:
        """Model in the form that kernels read."""
        return View(self.unary, self.pairwise, self.structure)

    @property
    def model(self) -> Model:
        """Flat arrays that general kernels read, built on first use."""
        return self.view.flat

    def to(self, device: str | None) -> Self:
        """Return the same potentials on another device.

        Args:
            device (str or None): A torch device such as "cuda", or None for NumPy arrays.

        Returns:
            Potentials: The potentials themselves if they are already on this type of device, otherwise a copy.

        Example:
            >>> lp.Potentials.grid(np.zeros((4, 5, 3)), 1.0).to(None).unary.shape  # NumPy arrays (N, S, L)
            (1, 20, 3)
        """
        if device == (self.unary.device.type if is_tensor(self.unary) else None):
            return self
        return self._changed(Restore(device))

    def part(self, images: slice) -> Self:
        """Return the given images of a batch.

        Args:
            images (slice): Images to select.

        Returns:
            Potentials: The selected images.  Arrays that are common to all images stay shared.

        Example:
            >>> lp.Potentials.grid(np.zeros((10, 4, 5, 3)), 1.0).part(slice(0, 2)).n_images
            2
        """
        return self._changed(lambda array: array if len(array) == 1 else array[images])

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        """Return the same potentials with ``change`` applied to every array."""

        def new(array: Any) -> Any:
            return None if array is None else frozen(change(array))

        term = self.pairwise
        weights = None if term.weights is None else tuple(new(weight) for weight in term.weights)
        pairwise = replace(term, weights=weights, features=new(term.features), tables=new(term.tables))
        return replace(self, unary=new(self.unary), pairwise=pairwise, masked=new(self.masked))

    def score(self, labels: Any) -> Any:
        """Compute the score θ(y) of a labelling.

        Args:
            labels (array): Labels (H, W) on a grid, (D, H, W) on a volume or (S,) on a graph, with a leading axis N for
                a batch. Labels of masked sites, such as -1, are ignored. A label of -1 at another site raises an error.

        Returns:
            float or array: The score, or scores (N,) for a batch.

        Example:
            >>> lp.Potentials.grid(np.array([[[0.0, 2.0], [1.0, 0.0]]]), 0.5).score([[1, 1]])  # 2.0 + 0.0 + 0.5
            2.5
        """
        host, flat = self.to(None), self.flat_labels(labels)
        view, weights = host.view, host.pairwise.weights  # not rounded to the precision of the unaries
        if weights is not None and (view.volume or view.grid) is not None:
            totals = volume_scores(host.unary, links_of(view)._replace(weights=weights), flat)
        else:
            totals = total_scores(host.model, flat)
        return self.restore(totals) if self.batched else float(totals[0])

    def local_scores(self, labels: Any) -> Any:
        """Compute the score of every label at every site, with all other labels fixed.

        Args:
            labels (array): Labels as for :meth:`score`.

        Returns:
            array: Scores of the shape of ``labels`` with a label axis appended, up to a constant per site.

        Example:
            >>> lp.Potentials.grid(np.array([[[0.0, 2.0], [1.0, 0.0]]]), 0.5).local_scores([[1, 1]]).tolist()
            [[[0.0, 2.5], [1.0, 0.5]]]
        """
        return self.restore(self.unflatten(local_scores(self.to(None).model, self.flat_labels(labels))))

    def flat_labels(self, labels: Any, name: str = "labels") -> npt.NDArray[np.int64]:
        """Return validated labels as (N, S).  Masked sites get 0, their only allowed label."""
        array = to_labels(labels, name)
        expected = ((self.n_images,) if self.batched else ()) + self.structure.shape
        if array.shape != expected:
            raise InputError(f"{name} has shape {array.shape}, expected {expected}")
        flat = array.reshape(self.n_images, self.n_sites)
        if self.masked is not None:
            flat = np.where(Restore()(self.masked), 0, flat)
        if flat.min() == -1:
            raise InputError(f"{name} contains -1 where no site is masked, expected 0 to {self.n_labels - 1}")
        if flat.min() < 0 or flat.max() >= self.n_labels:
            raise InputError(f"{name} runs from {flat.min()} to {flat.max()}, expected 0 to {self.n_labels - 1}")
        return flat

    def unflatten(self, values: Any) -> Any:
        """Return values (N, S, ...) in the caller's shape: batch axis (if any), site axes, other axes."""
        batch = (self.n_images,) if self.batched else ()
        return values.reshape(*batch, *self.structure.shape, *values.shape[2:])
