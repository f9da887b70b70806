"""Models in the form that kernels read: scores, and flat lists of edges that are built on first use."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from locpmap.arrays import Array, cast, frozen, is_tensor, namespace, place_like
from locpmap.graphs import Box, Graph, Grid, Volume
from locpmap.graphs.adjacency import colour_classes
from locpmap.kernels.model import GridWindow, Model, VolumeWindow
from locpmap.pairwise import Pairwise


@dataclass(frozen=True, eq=False)
class View:
    """Model in the form that kernels read: implements `locpmap.kernels.spec.ModelView`."""

    unary: Any  # (N, S, L)
    pairwise: Pairwise
    structure: Box | Graph
    cache: dict[Any, Any] = field(default_factory=dict)  # data that a backend caches for the lifetime of the model
    origin: Self | None = None  # the same model with other unaries, whose edge lists and weights this one shares

    @cached_property
    def flat(self) -> Model:
        """Flat arrays that general kernels read, built on first use in O(S + E log E).

        On a GPU they are tensors in the precision of the unaries.  Only ``class_ptr`` stays on the host, which reads it
        to launch one colour class after the other.
        """
        if self.origin is not None:
            return self.origin.flat._replace(unary=self.unary)
        features, tables = self.pairwise.flat(self.structure.direction_sizes)
        if is_tensor(self.unary):
            features, tables = (cast(array, self.unary.dtype) for array in (features, tables))
        order, class_ptr = colour_classes(self.structure.colours())
        parts = (self.structure.edges(), *self.structure.adjacency(), order)
        placed = [place_like(self.unary, frozen(part)) for part in (*parts, self.structure.site_ids())]
        terms = (self.unary, features, tables, self.pairwise.potts)
        return Model._make((*terms, *placed[:-1], frozen(class_ptr), placed[-1]))

    @property
    def potts(self) -> bool:
        return self.pairwise.potts

    @property
    def coupled(self) -> bool:
        return self.pairwise.coupled

    @property
    def least_weight(self) -> float:
        return self.pairwise.least_weight

    @cached_property
    def window(self) -> GridWindow | None:
        grid = self.structure
        if not isinstance(grid, Grid):
            return None
        return GridWindow(grid.height, grid.width, grid.row, grid.column, grid.whole_width, grid.whole_sites)

    @property
    def grid(self) -> GridWindow | None:
        return self.window if isinstance(self.structure, Grid) and self.structure.connectivity == 4 else None

    @cached_property
    def volume(self) -> VolumeWindow | None:
        box = self.structure
        if not isinstance(box, Volume):
            return None
        (depth, height, width), (_, whole_height, whole_width) = box.shape, box.whole_shape
        steps = tuple((z, y, x) for z, y, x in box.steps)
        return VolumeWindow(
            (depth, height, width), (box.plane, box.row, box.column), (whole_height, whole_width), steps
        )

    def with_unary(self, unary: Any) -> Self:
        """Return the same model with other unaries (N, S, L); it shares the edge lists."""
        unary = frozen(unary)  # whether an array is writeable is part of its type, for which Numba compiles
        return replace(self, unary=unary, cache={}, origin=self.origin or self)

    def step_weights(self, dtype: Any) -> tuple[Array, ...]:
        """Return the Potts weights of each step of a volume, (1|N, 1|E); cached."""
        home, key = self.origin or self, ("step_weights", dtype)
        if key not in home.cache:
            assert self.pairwise.weights is not None
            home.cache[key] = tuple(frozen(cast(weight, dtype)) for weight in self.pairwise.weights)
        found: tuple[Array, ...] = home.cache[key]
        return found

    def direction_weights(self, dtype: Any) -> tuple[Array, Array]:
        """Return Potts weights of a 4-connected grid to the right (1|N, H, W-1) and down (1|N, H-1, W); cached."""
        home, key = self.origin or self, ("direction_weights", dtype)
        if key not in home.cache:
            assert isinstance(self.structure, Grid) and self.pairwise.weights is not None
            xp, shapes = namespace(self.unary), self.structure.direction_shapes
            home.cache[key] = tuple(
                frozen(cast(xp.broadcast_to(weight, (len(weight), h * w)).reshape(len(weight), h, w), dtype))
                for weight, (h, w) in zip(self.pairwise.weights, shapes, strict=True)
            )
        right, down = home.cache[key]
        return right, down
