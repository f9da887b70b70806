"""From what was read and the weights to potentials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from locpmap.errors import InputError
from locpmap.inference.decoder import within
from locpmap.potentials import Potentials
from locpmap.refining.guiding import guided_mean
from locpmap.refining.likeness import likeness
from locpmap.refining.reading import Given, read_mask
from locpmap.refining.resizing import resize
from locpmap.refining.weights import STEPS, Weights


class Colours(NamedTuple):
    """What those who see a part of an image have to know of the whole."""

    squares: tuple[float, ...]  # the mean squared distance of neighbours, per direction
    variance: float


def full_size(given: Given) -> Any:
    """The scores at the size of the image, (N, H, W, K)."""
    small = given.scores.shape[1:3] != (given.height, given.width)
    if small and float(given.scores.min()) == -np.inf:
        raise InputError("logits holds -inf and is smaller than the image, expected finite numbers to resize")
    return resize(given.scores, given.height, given.width)


def compose(
    given: Given,
    weights: Weights,
    *,
    strength: float = 1.0,
    smoothing: float = 0.0,
    temperature: float = 1.0,
    mask: Any = None,
    stride: float | None = None,
    colours: Colours | None = None,
) -> Potentials:
    """The Potts model of a :class:`locpmap.Refiner`; see there."""
    within("strength", strength, 0)
    within("smoothing", smoothing, 0)
    within("temperature", temperature, 0, open_low=True)
    if stride is not None:
        within("stride", stride, 1)
    ignored = read_mask(mask, given)
    stride = given.stride if stride is None else stride
    scale, share, pairwise = weights.at(stride)
    unary, share = full_size(given), min(1.0, strength * share)
    unary = unary * np.float32(scale / temperature)
    if share > 0 and given.image is not None:
        for n, one in enumerate(unary):
            if float(one.min()) > -np.inf:  # which has no mean
                variance = None if colours is None else colours.variance
                mean = guided_mean(unary[n : n + 1], given.image[n : n + 1], stride, variance)[0]
                unary[n] = one * np.float32(1 - share) + mean * np.float32(share)
    squares = (None, None) if colours is None else colours.squares
    edges = [
        _edges(given, step, row / temperature, typical, mean)
        for step, row, typical, mean in zip(
            STEPS, strength * pairwise + [0.0, smoothing], weights.typical, squares, strict=True
        )
    ]
    if not given.batched:
        unary, edges = unary[0], [edge if isinstance(edge, float) else edge[0] for edge in edges]
    return replace(Potentials.grid(unary, tuple(edges), mask=ignored), restore=given.restore)


def _edges(given: Given, step: tuple[int, int], weights: Any, typical: float, mean: float | None) -> Any:
    """Potts weights of one direction, (N, h, w), or one for all."""
    constant, coloured = (float(weight) for weight in weights)
    if given.image is None or coloured == 0:
        return constant + coloured * typical
    return likeness(given.image, step, mean) * np.float32(coloured) + np.float32(constant)
