"""CRPS of label areas, and a fit of the weights that the area distribution depends on: presence and shared error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from locpmap.arrays import Array
from locpmap.inference import LocPMAP
from locpmap.refining.examples import VOID, Example
from locpmap.refining.prepared import Prepared
from locpmap.refining.presence import fit_presence, predicted_fractions
from locpmap.refining.weights import Weights

SHARED = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.75, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0)
N_SAMPLES = 40
MAX_IMAGES, MAX_SCORES = 60, 1 << 26  # limits on the images used for the fit, and on their scores in total
MAX_COUPLED = 15  # images used for the shared error where neighbours are coupled, since such samples are slow


def crps(values: Array, truth: Array) -> Array:
    """Compute the continuous ranked probability score of samples (M, ..) against true values (..).

    The score is ``E|X - y| - E|X - X'| / 2`` with independent X and X'; lower is better. The estimate from M >= 2
    samples is unbiased.

    >>> crps(np.array([[0.0], [2.0]]), np.array([1.0])).tolist()
    [0.0]
    """
    ordered, n = np.sort(values, axis=0), len(values)
    ranks = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (ordered.ndim - 1))
    spread = 2 * (ranks * ordered).sum(axis=0) / (n * (n - 1))  # E|X - X'|
    return np.abs(values - truth).mean(axis=0) - spread / 2


def fit_areas(weights: Weights, examples: Sequence[Example], seed: int) -> Weights:
    """Return the weights with presence and shared error fitted to the label areas.

    The presence parameters maximize the likelihood of which labels occur in each image. The standard deviation of the
    shared error is the candidate in ``SHARED`` with the lowest CRPS of the areas. The search evaluates about seven
    candidates, with 40 samples per image each.
    """
    some, n_scores = [], 0
    most = MAX_COUPLED if weights.pairwise.any() else MAX_IMAGES
    for example in [example for example in examples if (example.labels != VOID).any()][:MAX_IMAGES]:
        some.append(example)
        n_scores += example.scores.size
        if n_scores > MAX_SCORES:
            break
    found = [_predicted_and_present(example, weights) for example in some]
    parameters = fit_presence(*(np.stack(part) for part in zip(*found, strict=True)))
    prepared = [prepare(example, weights) for example in some[:most]]

    def loss(size: int) -> float:
        half, steepness = parameters
        tried = [
            (replace(one, errors=one.errors._replace(shared=SHARED[size], half=half, steepness=steepness)), truth)
            for one, truth in prepared
        ]
        return float(np.mean([crps(sampled_fractions(each, N_SAMPLES, seed), truth).mean() for each, truth in tried]))

    best, n = SHARED[lowest(loss, len(SHARED))], len(weights.strides)
    return replace(weights, shared=np.full(n, best), presence=np.tile(parameters, (n, 1)))


def lowest(loss: Callable[[int], float], n: int) -> int:
    """Return the index of the smallest of n losses that first fall and then rise, with few evaluations.

    >>> lowest(lambda k: (k - 11) ** 2, 17)
    11
    """
    known = cache(loss)
    place, step = n // 2, max(1, n // 4)
    while step:
        best = min((k for k in (place - step, place, place + step) if 0 <= k < n), key=known)
        place, step = best, step if best != place else step // 2
    return place


def _predicted_and_present(example: Example, weights: Weights) -> tuple[Array, Array]:
    """Return the predicted area fraction of each label, (K,), and whether the label occurs in the image, (K,)."""
    prepared, truth = prepare(example, weights)
    fractions = predicted_fractions(prepared.potentials)
    assert fractions is not None  # training scores are finite
    return fractions[0], truth > 0


def prepare(example: Example, weights: Weights) -> tuple[Prepared, Array]:
    """Return the model of an example, and the true area of each label as a fraction of the labelled pixels, (K,)."""
    counted = example.labels != VOID
    truth = np.bincount(example.labels[counted], minlength=example.scores.shape[-1])
    mask = None if counted.all() else ~counted
    return Prepared.of(example.given, weights, mask=mask, stride=example.stride), truth / counted.sum()


def sampled_fractions(prepared: Prepared, n_samples: int, seed: int) -> Array:
    """Sample label areas (M, K), as fractions of the unmasked pixels."""
    values = prepared.measure("area", LocPMAP(n_samples, start="perturbed"), seed=seed).values
    return values / values.sum(axis=1, keepdims=True)
