"""Coordinate descent on proper scores of sampled label maps; a step must lower the loss by half a standard error.

The loss is the mean of log ratios between scores and those of a reference, plus a penalty where true values lie outside
the range of the samples too often or too rarely. Its jackknife over images gives the standard error.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from locpmap.arrays import Array

N_SAMPLES = 8
MAX_PIXELS = 10 * 360 * 480  # of all images of an evaluation
FEWEST, MOST = 4, 100  # images of an evaluation
STEP = 0.5  # of the logarithms of weights
CALIBRATION = 2.0  # weight of the squared difference from the expected frequency outside the range
LEAST_RATIO = 0.01  # lower bound of ratios, since unbiased scores can be 0 or negative
MAX_MOVES = 3  # of each weight
SHRINKAGE = 0.2  # weight of the squared changes of logarithms, divided by the number of images
N_STANDARD_ERRORS = 0.5  # smallest improvement of a step, so that few images do no harm


def chosen(sizes: list[int], seed: int) -> Array:
    """Choose at most `MOST` images at random for an evaluation; ``sizes`` are their numbers of pixels."""
    most = int(np.clip(MAX_PIXELS // int(np.median(sizes)), FEWEST, MOST))
    return np.random.default_rng(seed).permutation(len(sizes))[:most]


def losses(scores: Array, beyond: Array, reference: Array, steps: Array) -> Array:
    """Return the loss over n images, followed by the losses without each image: (n + 1,).

    Args:
        scores: Scores (n, T) of samples; lower is better.
        beyond: Frequencies (n, B) of true values outside the range of `N_SAMPLES` samples.
        reference: `means_without_each` of the reference's scores, (n + 1, T).
        steps: Changes of logarithms of weights, whose squares are penalised.
    """
    means = means_without_each(scores)
    known = ~np.isnan(means) & (reference > 0)  # others have ratio 1
    ratios = np.log(np.divide(means, reference, out=np.ones_like(means), where=known).clip(LEAST_RATIO))
    excess = np.nan_to_num(means_without_each(beyond) - 2 / (N_SAMPLES + 1))
    penalty = SHRINKAGE / len(scores) * (steps**2).sum()
    return ratios.mean(axis=1) + CALIBRATION * (excess**2).mean(axis=1) + penalty


def means_without_each(scores: Array) -> Array:
    """Return the means over n images of scores (n, T), in the first row, and those without each image: (n + 1, T).

    Scores that an image does not have are NaN and are ignored.
    """
    counted = ~np.isnan(scores)
    total, number = np.where(counted, scores, 0).sum(axis=0), counted.sum(axis=0)
    totals, numbers = total - np.where(counted, scores, 0), number - counted
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.concatenate([(total / number)[None], totals / numbers])


def is_better(new: Array, old: Array, n_standard_errors: float = 1.0) -> bool:
    """Return whether a loss is lower by a number of jackknife standard errors; losses as those of `descend`.

    >>> is_better(np.array([0.0, 0.01, -0.01]), np.array([1.0, 1.0, 1.0]))
    True
    """
    gain, n = old - new, len(new) - 1
    return bool(n > 1 and gain[0] > n_standard_errors * np.sqrt((n - 1) * np.var(gain[1:])))


def descend(
    loss: Callable[[Array], Array],
    n: int,
    progress: Callable[[float], None] | None = None,
    max_moves: int = MAX_MOVES,
    lengths: Sequence[float] = (STEP,),
) -> tuple[Array, Array]:
    """Minimise a function of n variables by coordinate descent from 0, in steps of some lengths.

    Return the point and its losses. The function returns the loss over all images, followed by the losses without each
    image. For each length in turn, each variable moves by up to ``max_moves`` steps. ``progress`` is called with the
    lowest loss at the start and after each variable.

    >>> descend(lambda x: ((x - [0.5, -1.0]) ** 2).sum().repeat(9), 2)[0].round(2).tolist()
    [0.5, -1.0]
    """
    place, lowest = np.zeros(n), loss(np.zeros(n))
    report = progress or (lambda value: None)
    report(float(lowest[0]))
    for length, k in product(lengths, range(n)):
        for sign in (1, -1):
            n_moves = 0
            while n_moves < max_moves:
                tried = place + sign * length * (np.arange(n) == k)
                found = loss(tried)
                if not is_better(found, lowest, N_STANDARD_ERRORS):
                    break
                place, lowest, n_moves = tried, found, n_moves + 1
            if n_moves:
                break
        report(float(lowest[0]))
    return place, lowest
