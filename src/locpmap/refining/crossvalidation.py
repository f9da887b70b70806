"""Learn, and find out by cross-validation what it is good for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.errors import InputError, whole_number
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting import fit_scale, learn
from locpmap.refining.prepared import Prepared
from locpmap.refining.report import NETWORK, REFINED, SCALED, Report
from locpmap.refining.scoring import score, softmax, total
from locpmap.refining.weights import Weights


def cross_validated(
    examples: Sequence[Example],
    objective: str,
    n_folds: int,
    seed: int,
    progress: Callable[[int, int, float], None] | None = None,
) -> tuple[Weights, Report]:
    """Weights by all examples, and a report on each by weights that know nothing of it.

    ``progress`` is called after each example with how many have been judged, how many will be, and their negative
    log-likelihood per pixel, refined, so far.
    """
    n_folds = whole_number("n_folds", n_folds, 2)
    seed = whole_number("seed", seed, 0, 2**63)
    labelled = [example for example in examples if (example.labels != VOID).any()]
    if len(labelled) < n_folds:
        raise InputError(f"there are {len(labelled)} images with labels, expected at least n_folds={n_folds}")
    folds = np.array_split(np.random.default_rng(seed).permutation(len(labelled)), n_folds)
    weights_of_all = learn(labelled, objective, seed)
    scores: dict[str, list[Any]] = {NETWORK: [], SCALED: [], REFINED: []}
    for fold in folds:
        rest = [example for n, example in enumerate(labelled) if n not in set(fold.tolist())]
        weights = learn(rest, "likelihood", seed)  # what objectives add changes nothing that is reported
        scale = fit_scale(rest, seed)
        for example in (labelled[n] for n in fold):
            scores[NETWORK].append(score(softmax(example.scores), example.labels))
            scores[SCALED].append(score(softmax(scale * example.scores), example.labels))
            scores[REFINED].append(score(refined(example, weights, seed), example.labels))
            if progress is not None:
                progress(len(scores[REFINED]), len(labelled), total(scores[REFINED]).nll)
    return weights_of_all, Report(scores)


def refined(example: Example, weights: Weights, seed: int) -> Array:
    """Probabilities (H, W, K)."""
    return np.asarray(Prepared.of(example.given, weights, stride=example.stride).refine(seed=seed).probability)
