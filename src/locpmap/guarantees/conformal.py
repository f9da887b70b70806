"""Conformal prediction over images: quantiles of scores, and control of a mean loss.

Calibration images and a new image are assumed to be exchangeable, as independent draws from one distribution are.
"""

import math

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError

TINY = 1e-15  # lower bound of 1 - level, which may be rounded to 0
ROUNDING = 1e-9  # of levels such as 0.9, which floating-point numbers cannot represent


def images_needed(level: float) -> int:
    """Return the smallest number n of images with ``n / (n + 1) >= level``.

    >>> images_needed(0.9), images_needed(0.95)
    (9, 19)
    """
    return math.ceil(level / max(1 - level, TINY) - ROUNDING)


def check_number(n: int, level: float) -> None:
    """Raise if n calibration images are too few for a level."""
    if n < (least := images_needed(level)):
        raise InputError(f"level is {level:g}, which needs at least {least} images, and the guarantee has {n}")


def conformal_quantile(scores: Array, level: float) -> float:
    """Return the ⌈(n + 1) · level⌉-th smallest of n scores.

    If a new score is exchangeable with the others, it is at most this value with probability ``level`` or more.

    >>> conformal_quantile(np.arange(19.0), 0.9)
    17.0
    """
    rank = math.ceil((len(scores) + 1) * level - ROUNDING)
    return float(np.partition(scores, rank - 1)[rank - 1])


def controlled_quantile(scores: Array, weights: Array, level: float) -> float:
    """Return the smallest q whose mean loss on a new image is at most ``1 - level``: conformal risk control.

    The loss of an image is the total weight of its scores above q. Weights (n, K) have sum at most 1 in each row.

    >>> controlled_quantile(np.arange(20.0).reshape(10, 2), np.full((10, 2), 0.5), 0.8)
    17.0
    """
    counted = weights > 0
    order = np.argsort(scores[counted])[::-1]
    above = np.concatenate([[0.0], np.cumsum(weights[counted][order])])  # total loss if q is the score at that place
    allowed = (len(scores) + 1) * (1 - level) - 1 + ROUNDING
    place = int(np.flatnonzero(above[:-1] <= allowed)[-1])
    return float(scores[counted][order][place])


def controlled(losses: Array, n: int, limit: float) -> Array:
    """Return which mean losses over n images guarantee an expected loss of at most ``limit`` for a new one.

    The losses lie between 0 and 1. The bound of conformal risk control is ``(n · loss + 1) / (n + 1)``.

    >>> controlled(np.array([0.0, 0.05, 0.2]), 19, 0.1).tolist()
    [True, True, False]
    """
    return (n * losses + 1) / (n + 1) <= limit + ROUNDING
