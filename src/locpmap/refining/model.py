"""The Potts model of a refiner, built from an image, scores and weights."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import namespace, place_like
from locpmap.errors import InputError, within
from locpmap.potentials import Potentials
from locpmap.refining.guiding import guided_log_mean
from locpmap.refining.reading import Given, read_mask
from locpmap.refining.resizing import resize
from locpmap.refining.similarity import similarity
from locpmap.refining.weights import STEPS, Adjustment, Weights

AS_LEARNED = Adjustment()


class Colours(NamedTuple):
    """Colour statistics of a whole image, used when a model is built for a window of it."""

    squares: tuple[float, ...]  # the mean squared colour distance of neighbours, per step
    variance: float


def full_size(given: Given) -> Any:
    """Resize the scores to the size of the image, (N, H, W, K)."""
    small = given.scores.shape[1:3] != (given.height, given.width)
    if small and float(given.scores.min()) == -np.inf:
        raise InputError("logits holds -inf and is smaller than the image, expected finite numbers to resize")
    return resize(given.scores, given.height, given.width)


def pooled(
    scores: Any, image: Any, own: float, guided: float, masked: Any = None, variance: float | None = None
) -> Any:
    """Return ``own · scores + guided · g``, g being the guided log mean; scores of -inf stay -inf.

    If ``guided`` is 0, the scores are returned unchanged.
    """
    if guided == 0:
        return scores
    surroundings = guided_log_mean(scores, image, masked, variance)
    surroundings *= guided
    if own == 0:
        return namespace(scores).where(scores == -np.inf, scores, surroundings)
    surroundings += scores * np.float32(own)
    return surroundings


def compose(
    given: Given,
    weights: Weights,
    adjustment: Adjustment = AS_LEARNED,
    *,
    mask: Any = None,
    stride: float | None = None,
    colours: Colours | None = None,
) -> Potentials:
    """Build the Potts model documented in :class:`locpmap.refining.Prepared`."""
    strength, smoothing, temperature = adjustment.strength, adjustment.smoothing, adjustment.temperature
    if stride is not None:
        within("stride", stride, 1)
    ignored = read_mask(mask, given)
    stride = given.stride if stride is None else stride
    scale, own, guided, pairwise = weights.at(stride)
    with np.errstate(over="ignore"):  # the smallest number of a type, used as a mask, becomes -inf
        unary = full_size(given) * np.float32(scale)
    hidden = None if ignored is None else place_like(unary, np.broadcast_to(ignored, unary.shape[:3]))
    squares = (None, None) if colours is None else colours.squares
    edges = [  # before the unaries, which take longer: these read means from the device
        _edges(given, step, row / temperature, typical, hidden, mean)
        for step, row, typical, mean in zip(
            STEPS, strength * pairwise + [0.0, smoothing], weights.typical, squares, strict=True
        )
    ]
    if given.image is not None:
        own, guided = max(0.0, 1 + strength * (own - 1)), strength * guided
        variance = None if colours is None else colours.variance
        unary = pooled(unary, given.image, own, guided, hidden, variance)
    if temperature != 1:
        unary = unary * np.float32(1 / temperature)
    if not given.batched:
        unary, edges = unary[0], [edge if isinstance(edge, float) else edge[0] for edge in edges]
    potentials = Potentials.grid(unary, tuple(edges), mask=ignored)
    # A copy would compute again what the checks of the scores and weights found.
    return potentials if potentials.restore == given.restore else replace(potentials, restore=given.restore)


def _edges(given: Given, step: tuple[int, int], weights: Any, typical: float, hidden: Any, mean: float | None) -> Any:
    """Return the Potts weights of one step: (N, h, w), or one number for all edges."""
    constant, coloured = (float(weight) for weight in weights)
    if given.image is None or coloured == 0:
        return constant + coloured * typical
    return similarity(given.image, step, mean, hidden) * np.float32(coloured) + np.float32(constant)
