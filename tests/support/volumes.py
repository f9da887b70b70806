"""Potentials on small volumes of unusual shape."""

from __future__ import annotations

import numpy as np

import locpmap as lp
from locpmap.graphs import Volume


def odd_volume(
    shape: tuple[int, int, int], n_labels: int, connectivity: int = 6, *, per_edge: bool = True, seed: int = 0
) -> lp.Potentials:
    """Return two images with masked sites, forbidden labels and weights per edge, which differ between the images."""
    rng = np.random.default_rng(seed)
    unary = 2 * rng.normal(size=(2, *shape, n_labels)).astype(np.float32)
    unary[..., 1:][rng.random((2, *shape, n_labels - 1)) < 0.2] = -np.inf
    steps = Volume(*shape, connectivity).direction_shapes
    weights = [1.5 * rng.random((2, *step)).astype(np.float32) for step in steps] if per_edge else 0.8
    mask = rng.random(shape) < 0.2
    mask.flat[0] = False
    return lp.Potentials.volume(unary, weights, connectivity=connectivity, mask=mask, spacing=(1.0, 1.3, 0.7))
