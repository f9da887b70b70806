"""Potts weights of 4-connected grids by direction, as kernels of grids take them: no list of edges is made."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy.typing as npt

from locpmap.arrays import cast, frozen, namespace, of_images
from locpmap.graphs import Grid
from locpmap.potentials import Potentials

Array = npt.NDArray[Any]

_directions: WeakKeyDictionary[Potentials, dict[Any, tuple[Array, ...]]] = WeakKeyDictionary()


def takes_directions(potentials: Potentials) -> bool:
    """Whether edges run right and down only and have Potts weights, as :func:`direction_weights` wants them."""
    grid = potentials.structure
    return isinstance(grid, Grid) and grid.connectivity == 4 and potentials.pairwise.potts


def direction_weights(potentials: Potentials, dtype: Any) -> tuple[Array, ...]:
    """Potts weights to the right (1|N, H, W-1) and down (1|N, H-1, W), in one precision and one layout.

    So a kernel compiles for them once.  They are kept for as long as the potentials live.
    """
    kept = _directions.setdefault(potentials, {})
    if dtype not in kept:
        grid, weights = potentials.structure, potentials.pairwise.weights
        assert isinstance(grid, Grid) and weights is not None
        xp = namespace(weights[0])
        kept[dtype] = tuple(
            frozen(cast(xp.broadcast_to(weight, (len(weight), h * w)).reshape(len(weight), h, w), dtype))
            for weight, (h, w) in zip(weights, grid.direction_shapes, strict=True)
        )
    return kept[dtype]


def model_of_images(potentials: Potentials, weights: tuple[Array, ...], lo: int, hi: int) -> tuple[Array, ...]:
    """Unaries and direction weights of images lo..hi, as kernels of grids take them; weights that all share stay."""
    shared = (weight if weight.shape[0] == 1 else of_images(weight, lo, hi) for weight in weights)
    return of_images(potentials.unary, lo, hi), *shared
