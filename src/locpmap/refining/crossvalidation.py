"""Training of a refiner, with a cross-validated report on whether it helps."""

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
    """Return weights learned from all examples, and a report of held-out scores.

    Each example is scored with weights learned without its fold. After each example, ``progress`` is called with the
    number of examples scored, the number of examples, and the mean negative log-likelihood per pixel so far.
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
        weights = learn(rest, "likelihood", seed)  # the other objectives do not change the reported scores
        scale = fit_scale(rest, seed)
        for example in (labelled[n] for n in fold):
            scores[NETWORK].append(score(softmax(example.scores), example.labels))
            scores[SCALED].append(score(softmax(scale * example.scores), example.labels))
            scores[REFINED].append(score(refined(example, weights, seed), example.labels))
            if progress is not None:
                progress(len(scores[REFINED]), len(labelled), total(scores[REFINED]).nll)
    return weights_of_all, Report(scores)


def refined(example: Example, weights: Weights, seed: int) -> Array:
    """Return the refined probabilities of an example, (H, W, K)."""
    return np.asarray(Prepared.of(example.given, weights, stride=example.stride).refine(seed=seed).probability)
