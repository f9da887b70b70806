"""Adaptation of a refiner to each image, without labels: how far similar pixels may change the prediction."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, current_device, is_tensor, namespace, place_like
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.placement import has_kernels
from locpmap.refining.scoring import softmax

SIDES = {2: 64, 3: 16}  # largest side of the lattice, by the number of axes
N_STEPS = 2  # steps of Newton's method
LARGEST = 1.4  # bound of the logarithm of the factor
LOWEST = -80.0  # log-probability that counts as 0
LARGE = 1e30
TINY = 1e-6


class Adaptation(NamedTuple):
    """Strength of a model and factor of its scores: one per image, (N,), or one for a whole raster."""

    strength: Any  # from 0 to 1
    factor: Any

    @property
    def changes(self) -> bool:
        """Whether the model may differ from the learned one."""
        return not isinstance(self.strength, float) or self != UNCHANGED


UNCHANGED = Adaptation(1.0, 1.0)
KEPT = Adaptation(0.0, 1.0)  # the network's own prediction, for weights that do not use similar pixels


class Rule(NamedTuple):
    """Rule by which weights adapt to an image.

    ``strength = (agreement - threshold) / (1 - threshold)``, clipped to 0..1. The mean confidence c of the scores
    becomes ``c + strength · removed · (1 - c)``. A threshold of 0 means that weights do not adapt.
    """

    threshold: float
    removed: float


@lru_cache(maxsize=8)  # images of a pipeline share a size, and a GPU keeps the places as long as they exist
def lattice(*shape: int) -> Array:
    """Return flat indices of at most 64 × 64 pixels (16 × 16 × 16 voxels) of an image, evenly spaced.

    >>> lattice(2, 3).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    side = SIDES[len(shape)]
    along = [(2 * np.arange(min(n, side)) + 1) * n // (2 * min(n, side)) for n in shape]
    return np.ravel_multi_index(np.ix_(*along), shape).ravel()


def adapted_to(scores: Any, guided: Any, hidden: Any, own: float, weight: float, rule: Rule) -> Adaptation:
    """Return the adaptation to images of scores and guided log means (N, H, W, K), without masked pixels."""
    n, *shape, n_labels = scores.shape
    if is_tensor(scores) and has_kernels(scores.device):
        numbers = (own, weight, *rule, LARGEST, LOWEST, LARGE, TINY)
        given = (scores.contiguous(), guided, None if hidden is None else ~hidden, lattice(*shape))
        with current_device(scores):
            return Adaptation(*kernel_of("triton", "adaptation")(*given, numbers, N_STEPS))
    places = place_like(scores, lattice(*shape))
    layers = []
    for k in range(n):
        chosen = places if hidden is None else places[~hidden[k].reshape(-1)[places]]
        layers.append(tuple(one[k].reshape(-1, n_labels)[chosen] for one in (scores, guided)))
    return adapted(layers, own, weight, rule)


def adapted(layers: Iterable[tuple[Any, Any]], own: float, weight: float, rule: Rule) -> Adaptation:
    """Return, for each image, the strength of similar pixels and the factor that restores the mean confidence.

    The agreement compares the network's probabilities p with the mean g of its probabilities at similar pixels::

        agreement = (mean p · g - p̄ · p̄) / (mean p · p - p̄ · p̄),   p̄ = mean p

    It is 1 if pixels of similar colour have the same prediction, and about 0 if colours do not predict the network's
    probabilities, or these are noise. If it is low, the network's prediction is unchanged. The mean includes the pixel
    itself, so the agreement is too high if few other pixels are similar, as in images of many noisy channels.

    The factor is chosen such that the mean confidence of the changed scores is that of the network, raised by `Rule`.
    The right confidence cannot be estimated without labels.

    Args:
        layers: The network's scores (P, K) at P pixels of every image, and the logarithms of the mean probabilities at
            similar pixels, (P, K).
        own: Factor of the scores where the strength is 1.
        weight: Factor of the logarithms where the strength is 1.
        rule: The learned rule.
    """
    found = [_of_image(*one, own, weight, rule) for one in layers]  # rounding does not depend on the batch
    xp = namespace(found[0][0])
    return Adaptation(*(xp.stack(values) for values in zip(*found, strict=True)))


def _of_image(scores: Any, guided: Any, own: float, weight: float, rule: Rule) -> tuple[Any, Any]:
    """Return the strength and the factor of one image; on a GPU, the cost is the number of operations."""
    xp = namespace(scores)
    if not len(scores):
        return scores.sum(), 1 + scores.sum()
    z = _below_best(scores)
    p = softmax(z)
    centre = p.mean(0)
    chance = (centre * centre).sum()
    possible = (p * p).sum() / len(p) - chance
    agreement = ((p * xp.exp(guided)).sum() / len(p) - chance) / (possible + TINY)
    agreement = xp.where(possible > 10 * TINY, agreement, 0 * agreement)  # else all predictions are equal, but rounding
    strength = xp.clip((agreement - rule.threshold) / (1 - rule.threshold), 0, 1)
    u = _below_best(z + strength * ((own - 1) * z + weight * guided))
    confidence = xp.amax(p, -1).mean()
    target = confidence + strength * rule.removed * (1 - confidence)
    logarithm, factor = 0 * strength, 1 + 0 * strength
    for _ in range(N_STEPS):  # Newton's method for the logarithm of the factor
        p = softmax(factor * u)
        best = xp.amax(p, -1)
        slope = -factor * (best * (p * u).sum(-1)).mean()
        logarithm = xp.clip(logarithm + (target - best.mean()) / (slope + TINY), -LARGEST, LARGEST)
        factor = xp.exp(logarithm)
    return strength, xp.where(strength > 0, factor, 1 + 0 * factor)


def _below_best(scores: Any) -> Any:
    """Return scores minus the best one of each pixel, at least `LOWEST`; also where all are -inf."""
    xp = namespace(scores)
    return xp.clip(scores - xp.clip(xp.amax(scores, -1), -LARGE, None)[..., None], LOWEST, None)


def per_image(values: Any, n_axes: int) -> Any:
    """Return one number per image, (N,), as a factor of arrays with N images; a number for all images unchanged."""
    return np.float32(values) if isinstance(values, float) else values.reshape(-1, *(1,) * (n_axes - 1))
