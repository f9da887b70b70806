"""Batches of scenes of different sizes: each in the upper left corner of a canvas of the largest size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap import Potentials
from locpmap.graphs import Grid, Steps
from locpmap_paper.experiments.experiment import Array


def on_canvas(arrays: Sequence[Array], size: tuple[int, ...], fill: Any) -> Array:
    """Return arrays (h, w, ..) as one array (N, H, W, ..), padded with ``fill``.

    >>> on_canvas([np.ones((1, 2), int), np.ones((2, 1), int)], (2, 2), 0).tolist()
    [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]
    """
    whole = np.full((len(arrays), *size, *arrays[0].shape[2:]), fill, arrays[0].dtype)
    for target, array in zip(whole, arrays, strict=True):
        target[: array.shape[0], : array.shape[1]] = array
    return whole


def crf_on_canvas(
    unary: Sequence[Array], weights: Sequence[Sequence[Array]], steps: Steps, size: tuple[int, int]
) -> Potentials:
    """Return the CRFs of scenes, from scores (h, w, L) and Potts weights per step, with the padding masked."""
    shapes = Grid(*size, connectivity=steps).direction_shapes
    every = [
        on_canvas(list(along), shape, 0.0) for along, shape in zip(zip(*weights, strict=True), shapes, strict=True)
    ]
    outside = on_canvas([np.zeros(scores.shape[:2], bool) for scores in unary], size, True)
    return Potentials.grid(on_canvas(unary, size, 0.0), tuple(every), connectivity=steps, mask=outside)
