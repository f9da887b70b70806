"""Areas of labels as random numbers: how good their distribution is, and weights that make it good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.measuring import measure
from locpmap.refining.examples import VOID, Example
from locpmap.refining.model import compose
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
SHARED = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
N_SAMPLES = 40
MOST_IMAGES = 30


def crps(values: Array, truth: Array) -> Array:
    """The continuous ranked probability score of samples (M, ..) of a number and its true value (..); less is better.

    ``E|X - y| - E|X - X'| / 2`` with independent X and X', estimated without bias from M >= 2 samples.

    >>> crps(np.array([[0.0], [2.0]]), np.array([1.0])).tolist()
    [0.0]
    """
    ordered, n = np.sort(values, axis=0), len(values)
    ranks = (2 * np.arange(1, n + 1) - n - 1).reshape(-1, *[1] * (ordered.ndim - 1))
    spread = 2 * (ranks * ordered).sum(axis=0) / (n * (n - 1))  # E|X - X'|
    return np.abs(values - truth).mean(axis=0) - spread / 2


def sampled_areas(example: Example, weights: Weights, n_samples: int, seed: int) -> tuple[Array, Array]:
    """Areas of the labels in samples (M, K) and in truth (K,), as shares of the pixels that count."""
    counted = example.labels != VOID
    potentials = compose(example.given, weights, mask=None if counted.all() else ~counted, stride=example.stride)
    shared = weights.shared_at(example.stride)
    found = measure(potentials, "area", n_samples=n_samples, start="perturbed", seed=seed, shared=shared)
    truth = np.bincount(example.labels[counted], minlength=example.scores.shape[-1])
    return found.values / counted.sum(), truth / counted.sum()


def fit_shared(weights: Weights, examples: Sequence[Example], seed: int) -> Weights:
    """The same with that much of an error in common to all pixels of an image that gives the areas the least CRPS."""
    some = [example for example in examples if (example.labels != VOID).any()][:MOST_IMAGES]

    def loss(candidate: Weights) -> float:
        return float(np.mean([crps(*sampled_areas(example, candidate, N_SAMPLES, seed)).mean() for example in some]))

    return min((replace(weights, shared=np.full(len(weights.strides), shared)) for shared in SHARED), key=loss)
