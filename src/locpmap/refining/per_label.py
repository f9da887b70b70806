"""Factor and offset of each label, for a network that predicts some labels too often or too confidently.

Networks trained with class weights or a Dice loss are biased in this way. The correction is left out unless it helps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.examples import VOID, Example
from locpmap.refining.scoring import Score, difference, score, softmax

PIXELS = 500  # per image
N_FOLDS = 5
PENALTIES = (1e-3, 1e-2, 1e-1)  # of half the squared changes, per pixel
MAX_STEPS = 30  # of the optimizer
LEAST_FACTOR = 0.05
FEWEST = 5  # groups with a label that gets a factor and an offset, unless there are fewer
N_STANDARD_ERRORS = 1.0  # by which a correction has to lower the negative log-likelihood


class Correction(NamedTuple):
    """Correction of scores z, whose maximum at each pixel is 0, to ``factors · z + offsets``."""

    factors: Array  # (K,)
    offsets: Array  # (K,), of mean 0


def fit_per_label(examples: Sequence[Example], scale: float, seed: int) -> Correction | None:
    """Return the correction of scaled scores that maximizes the penalized likelihood of the labels.

    The penalty is chosen by cross-validation over groups of images. Return None if, on held-out groups, the
    likelihood does not increase by a standard error, or the mean IoU decreases. Cost: about 500 evaluations of
    `PIXELS` pixels of every image.
    """
    rng = np.random.default_rng(seed)
    pixels: dict[int, list[tuple[Array, Array]]] = {}
    for example in examples:
        x, y = _some(example, scale, rng)
        if len(y):
            pixels.setdefault(example.group, []).append((x, y))
    groups = [(np.concatenate([x for x, _ in each]), np.concatenate([y for _, y in each])) for each in pixels.values()]
    if len(groups) < 2:
        return None
    folds = np.array_split(rng.permutation(len(groups)), min(N_FOLDS, len(groups)))
    plain = [score(softmax(x), y) for x, y in groups]
    held = {penalty: _left_out(groups, folds, penalty) for penalty in PENALTIES}
    best = min(held, key=lambda penalty: sum(one.loss for one in held[penalty]))
    change, error = difference(held[best], plain, lambda score: score.nll)
    if not change < -N_STANDARD_ERRORS * error or difference(held[best], plain, lambda score: score.iou)[0] < 0:
        return None
    return _fitted(groups, best)


def _some(example: Example, scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return scaled scores (P, K), whose maximum is 0, and labels (P,) of random labelled pixels."""
    some = rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]
    x = example.scores.reshape(-1, example.scores.shape[-1])[some].astype(np.float64) * scale
    return x - x.max(axis=-1, keepdims=True), example.labels.ravel()[some]


def _left_out(groups: Sequence[tuple[Array, Array]], folds: Sequence[Array], penalty: float) -> list[Score]:
    """Score each group with the correction that was fitted without its fold."""
    scores: dict[int, Score] = {}
    for fold in folds:
        factors, offsets = _fitted([group for n, group in enumerate(groups) if n not in fold], penalty)
        scores |= {n: score(softmax(factors * groups[n][0] + offsets), groups[n][1]) for n in fold.tolist()}
    return [scores[n] for n in range(len(groups))]


def _fitted(groups: Sequence[tuple[Array, Array]], penalty: float) -> Correction:
    from scipy.optimize import minimize

    x, y = (np.concatenate(part) for part in zip(*groups, strict=True))
    (n, n_labels), at = x.shape, np.arange(len(y))
    occurs = np.bincount(np.concatenate([np.unique(y) for _, y in groups]), minlength=n_labels)
    changed = np.flatnonzero(occurs >= min(FEWEST, len(groups)))
    if not len(changed):
        return Correction(np.ones(n_labels), np.zeros(n_labels))

    def corrected(changes: Array) -> Correction:
        factors, offsets = np.ones(n_labels), np.zeros(n_labels)
        factors[changed] += changes[0]
        offsets[changed] = changes[1] - changes[1].mean()
        return Correction(factors, offsets)

    def loss(changes: Array) -> tuple[float, Array]:
        factors, offsets = corrected(changes.reshape(2, -1))
        p = softmax(factors * x + offsets)
        value = -np.log(np.maximum(p[at, y], 1e-300)).mean() + penalty / 2 * changes @ changes
        p[at, y] -= 1
        of_offsets = p.sum(axis=0)[changed]
        slopes = np.concatenate([(p * x).sum(axis=0)[changed], of_offsets - of_offsets.mean()])
        return float(value), slopes / n + penalty * changes

    bounds = [(LEAST_FACTOR - 1, None)] * len(changed) + [(None, None)] * len(changed)
    options = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": MAX_STEPS}}
    return corrected(minimize(loss, np.zeros(2 * len(changed)), **options).x.reshape(2, -1))
