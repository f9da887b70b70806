"""Score the distribution of label areas, and fit the weights that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from locpmap.arrays import Array
from locpmap.inference import LocPMAP
from locpmap.refining.examples import VOID, Example
from locpmap.refining.prepared import Prepared
from locpmap.refining.presence import fit_presence, shares_of
from locpmap.refining.weights import Weights

SHARED = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0)
N_SAMPLES = 40
MOST_IMAGES, MOST_SCORES = 60, 1 << 26  # of the images that it is chosen by, and of all their scores
MOST_COUPLED = 15  # images, where samples have to climb


def crps(values: Array, truth: Array) -> Array:
    """Return the continuous ranked probability score of samples (M, ..) and true values (..); less is better.

    ``E|X - y| - E|X - X'| / 2`` with independent X and X', estimated without bias from M >= 2 samples.

    >>> crps(np.array([[0.0], [2.0]]), np.array([1.0])).tolist()
    [0.0]
    """
    ordered, n = np.sort(values, axis=0), len(values)
    ranks = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (ordered.ndim - 1))
    spread = 2 * (ranks * ordered).sum(axis=0) / (n * (n - 1))  # E|X - X'|
    return np.abs(values - truth).mean(axis=0) - spread / 2


def fit_areas(weights: Weights, examples: Sequence[Example], seed: int) -> Weights:
    """Return the weights with presence and shared error fitted to the labels' areas.

    The presence by maximum likelihood of which labels are there, then the size of the error that gives the areas the
    least CRPS.  Cost: 40 samples of some images for each of the seven or so sizes that are tried.
    """
    some, n_scores = [], 0
    most = MOST_COUPLED if weights.pairwise.any() else MOST_IMAGES
    for example in [example for example in examples if (example.labels != VOID).any()][:MOST_IMAGES]:
        some.append(example)
        n_scores += example.scores.size
        if n_scores > MOST_SCORES:
            break
    found = [_seen(example, weights) for example in some]
    rare = fit_presence(*(np.stack(part) for part in zip(*found, strict=True)))
    prepared = [prepare(example, weights) for example in some[:most]]

    def loss(size: int) -> float:
        tried = ((replace(each, shared=SHARED[size], rare=rare), truth) for each, truth in prepared)
        return float(np.mean([crps(sampled_shares(each, N_SAMPLES, seed), truth).mean() for each, truth in tried]))

    best, n = SHARED[lowest(loss, len(SHARED))], len(weights.strides)
    return replace(weights, shared=np.full(n, best), presence=np.tile(rare, (n, 1)))


def lowest(loss: Callable[[int], float], n: int) -> int:
    """Return the index of the least of n losses that fall and then rise, with few evaluations.

    >>> lowest(lambda k: (k - 11) ** 2, 17)
    11
    """
    known = cache(loss)
    place, step = n // 2, max(1, n // 4)
    while step:
        best = min((k for k in (place - step, place, place + step) if 0 <= k < n), key=known)
        place, step = best, step if best != place else step // 2
    return place


def _seen(example: Example, weights: Weights) -> tuple[Array, Array]:
    """Return each label's share of the image by the scores, and whether it is there: (K,) each."""
    prepared, truth = prepare(example, weights)
    shares = shares_of(prepared.potentials)
    assert shares is not None  # scores to learn from are finite
    return shares[0], truth > 0


def prepare(example: Example, weights: Weights) -> tuple[Prepared, Array]:
    """Return the model of an example, and the areas of its labels as shares of the labelled pixels."""
    counted = example.labels != VOID
    truth = np.bincount(example.labels[counted], minlength=example.scores.shape[-1])
    mask = None if counted.all() else ~counted
    return Prepared.of(example.given, weights, mask=mask, stride=example.stride), truth / counted.sum()


def sampled_shares(prepared: Prepared, n_samples: int, seed: int) -> Array:
    """Return the areas of the labels in samples (M, K), as shares of the pixels that are not masked."""
    values = prepared.measure("area", LocPMAP(n_samples, start="perturbed"), seed=seed).values
    return values / values.sum(axis=1, keepdims=True)
