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
COUPLINGS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
TEMPERATURES = (0.5, 0.7, 1.4, 2.0, 3.0)
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
    found = measure(potentials, "area", n_samples=n_samples, start="perturbed", seed=seed)
    truth = np.bincount(example.labels[counted], minlength=example.scores.shape[-1])
    return found.values / counted.sum(), truth / counted.sum()


def widen(weights: Weights, examples: Sequence[Example], seed: int) -> Weights:
    """The same with a coupling of neighbours, and then a temperature, that give the areas the least CRPS."""
    some = [example for example in examples if (example.labels != VOID).any()][:MOST_IMAGES]

    def loss(candidate: Weights) -> float:
        return float(np.mean([crps(*sampled_areas(example, candidate, N_SAMPLES, seed)).mean() for example in some]))

    pairwise = np.zeros_like(weights.pairwise)
    seen = int(some[0].given.image is not None)  # which feature couples: likeness, or the constant
    coupled = []
    for coupling in COUPLINGS:
        pairwise[..., seen] = coupling
        coupled.append(replace(weights, pairwise=pairwise.copy()))
    best = min(coupled, key=loss)
    warmed = [replace(best, scales=best.scales / t, pairwise=best.pairwise / t) for t in TEMPERATURES]
    return min([best, *warmed], key=loss)
