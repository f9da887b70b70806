"""Learn, and find out by cross-validation what it is good for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, whole_number
from locpmap.inference import LocPMAP, infer
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting import fit_scales, learn
from locpmap.refining.model import compose, samples_needed
from locpmap.refining.report import NETWORK, REFINED, SCALED, Report
from locpmap.refining.scoring import score, softmax
from locpmap.refining.weights import Weights

Array = npt.NDArray[Any]
N_SAMPLES = 50


def cross_validated(
    examples: Sequence[Example],
    objective: str,
    n_folds: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Weights, Report]:
    """Weights by all examples, and a report on each by weights that know nothing of it."""
    n_folds = whole_number("n_folds", n_folds, 2, 2**31 - 1)
    seed = whole_number("seed", seed, 0, 2**63)
    labelled = [example for example in examples if (example.labels != VOID).any()]
    if len(labelled) < n_folds:
        raise InputError(f"there are {len(labelled)} images with labels, expected at least n_folds={n_folds}")
    folds = np.array_split(np.random.default_rng(seed).permutation(len(labelled)), n_folds)
    scores: dict[str, list[Any]] = {NETWORK: [], SCALED: [], REFINED: []}
    for done, fold in enumerate(folds):
        rest = [example for n, example in enumerate(labelled) if n not in set(fold.tolist())]
        weights = learn(rest, objective, seed)
        (scale,) = fit_scales(rest, guided=False, seed=seed)
        for example in (labelled[n] for n in fold):
            scores[NETWORK].append(score(softmax(example.scores), example.labels))
            scores[SCALED].append(score(softmax(scale * example.scores), example.labels))
            scores[REFINED].append(score(refined(example, weights, seed), example.labels))
        if progress is not None:
            progress(done + 1, n_folds + 1)
    weights = learn(labelled, objective, seed)
    if progress is not None:
        progress(n_folds + 1, n_folds + 1)
    return weights, Report(scores)


def refined(example: Example, weights: Weights, seed: int) -> Array:
    """Probabilities (H, W, K)."""
    potentials = compose(example.given, weights, stride=example.stride)
    n_samples = samples_needed(potentials, N_SAMPLES)
    decoder = LocPMAP(n_samples, start="perturbed", probability="conditional")
    return np.asarray(infer(potentials, decoder, seed=seed).probability)
