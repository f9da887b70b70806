"""Offsets of labels: numbers added to the scaled scores of a network that predicts some labels too often.

Networks trained with class weights or a Dice loss are biased in this way. Offsets are 0 unless they help.
"""

from collections.abc import Sequence

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.examples import VOID, Example
from locpmap.refining.scoring import Score, difference, score, softmax

PIXELS = 1000  # per image
N_FOLDS = 5
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)  # of half the squared offsets, per pixel
N_STANDARD_ERRORS = 2.0  # by which offsets have to lower the negative log-likelihood


def fit_offsets(examples: Sequence[Example], scale: float, seed: int) -> Array:
    """Return the offsets (K,), of mean 0, that maximize the penalized likelihood of the labels.

    The penalty is chosen by cross-validation over groups of images. The offsets are 0 if, on the groups left out, the
    likelihood does not increase by two standard errors, or the mean IoU falls. Cost: about 60 evaluations of `PIXELS`
    pixels of every image.
    """
    rng = np.random.default_rng(seed)
    pixels: dict[int, list[tuple[Array, Array]]] = {}
    for example in examples:
        x, y = _some(example, scale, rng)
        if len(y):
            pixels.setdefault(example.group, []).append((x, y))
    images = [(np.concatenate([x for x, _ in each]), np.concatenate([y for _, y in each])) for each in pixels.values()]
    none = np.zeros(examples[0].scores.shape[-1])
    if len(images) < 2:
        return none
    folds = np.array_split(rng.permutation(len(images)), min(N_FOLDS, len(images)))
    plain = [score(softmax(x), y) for x, y in images]
    held = {penalty: _left_out(images, folds, penalty) for penalty in PENALTIES}
    best = min(held, key=lambda penalty: sum(one.loss for one in held[penalty]))
    change, error = difference(held[best], plain, lambda score: score.nll)
    if not change < -N_STANDARD_ERRORS * error or difference(held[best], plain, lambda score: score.iou)[0] < 0:
        return none
    return _fitted(images, best)


def _some(example: Example, scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return scaled scores (P, K) and labels (P,) of random labelled pixels."""
    some = rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]
    x = example.scores.reshape(-1, example.scores.shape[-1])[some].astype(np.float64) * scale
    return x - x.max(axis=-1, keepdims=True), example.labels.ravel()[some]


def _left_out(images: Sequence[tuple[Array, Array]], folds: Sequence[Array], penalty: float) -> list[Score]:
    """Score each image with the offsets that were fitted without its fold."""
    scores: dict[int, Score] = {}
    for fold in folds:
        offsets = _fitted([image for n, image in enumerate(images) if n not in fold], penalty)
        scores |= {n: score(softmax(images[n][0] + offsets), images[n][1]) for n in fold.tolist()}
    return [scores[n] for n in range(len(images))]


def _fitted(images: Sequence[tuple[Array, Array]], penalty: float) -> Array:
    from scipy.optimize import minimize

    x, y = (np.concatenate(part) for part in zip(*images, strict=True))
    shares = np.bincount(y, minlength=x.shape[1]) / len(y)

    def loss(offsets: Array) -> tuple[float, Array]:
        moved = x + offsets
        normalisers = np.log(np.exp(moved).sum(axis=1))
        predicted = np.exp(moved - normalisers[:, None]).mean(axis=0)
        value = normalisers.mean() - shares @ offsets + penalty / 2 * offsets @ offsets
        return float(value), predicted - shares + penalty * offsets

    found: Array = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    return found - found.mean()
