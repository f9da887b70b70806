"""Factor and offset of each label, for a network that predicts some labels too often or too confidently.

Networks trained with class weights or a Dice loss are biased in this way. The correction is left out unless it helps.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.examples import VOID, Example
from locpmap.refining.scoring import Score, difference, near_boundary, score, softmax

PIXELS, JUDGED = 500, 5000  # per image, for the fit and for the decision whether to use it
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


class Pixels(NamedTuple):
    """Some labelled pixels of a group of images."""

    x: Array  # (P, K) scaled scores, whose maximum is 0, in single precision
    y: Array  # (P,) labels
    near: Array  # (P,) whether the pixel is near a boundary between labels

    @classmethod
    def of(cls, examples: Sequence[Example], scale: float, n: int, rng: np.random.Generator) -> Self:
        """Choose at most ``n`` pixels of each image at random."""
        parts = []
        for example in examples:
            labels, n_labels = example.labels.ravel(), example.scores.shape[-1]
            some = rng.permutation(np.flatnonzero(labels != VOID))[:n]
            x = example.scores.reshape(-1, n_labels)[some] * np.float32(scale)
            near = near_boundary(example.labels, n_labels).ravel()[some]
            parts.append((x - x.max(axis=-1, keepdims=True), labels[some], near))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def scored(self, correction: Correction | None) -> tuple[Score, Score]:
        """Score the corrected probabilities of all pixels, and of those near a boundary."""
        p = softmax(self.x if correction is None else correction.factors * self.x + correction.offsets)
        return score(p, self.y), score(p[self.near], self.y[self.near])


def fit_per_label(examples: Sequence[Example], scale: float, seed: int) -> Correction | None:
    """Return the correction of scaled scores that maximizes the penalized likelihood of the labels.

    The penalty is chosen by cross-validation over groups of images. Return None if, on held-out groups, the
    likelihood does not increase by a standard error, or the mean IoU decreases, of all pixels or of those near a
    boundary: a correction may raise the likelihood and remove small parts of objects. Cost: about 500 evaluations of
    `PIXELS` pixels of every image.
    """
    rng = np.random.default_rng(seed)
    members: dict[int, list[Example]] = {}
    for example in examples:
        if (example.labels != VOID).any():
            members.setdefault(example.group, []).append(example)
    if len(members) < 2:
        return None
    groups, judged = ([Pixels.of(each, scale, n, rng) for each in members.values()] for n in (PIXELS, JUDGED))
    folds = np.array_split(rng.permutation(len(groups)), min(N_FOLDS, len(groups)))
    plain, plain_near = zip(*(one.scored(None) for one in judged), strict=True)
    held = {penalty: _left_out(groups, judged, folds, penalty) for penalty in PENALTIES}
    best = min(held, key=lambda penalty: sum(one.loss for one, _ in held[penalty]))
    corrected, corrected_near = zip(*held[best], strict=True)
    change, error = difference(corrected, plain, lambda score: score.nll)
    both = (corrected, plain), (corrected_near, plain_near)
    ious = [difference(*pair, lambda score: score.iou)[0] for pair in both]
    helps = change < -N_STANDARD_ERRORS * error and min(ious) >= 0
    return _fitted(groups, best) if helps else None


def _left_out(
    groups: Sequence[Pixels], judged: Sequence[Pixels], folds: Sequence[Array], penalty: float
) -> list[tuple[Score, Score]]:
    """Score each group with the correction that was fitted without its fold."""
    scores: dict[int, tuple[Score, Score]] = {}
    for fold in folds:
        correction = _fitted([group for n, group in enumerate(groups) if n not in fold], penalty)
        scores |= {n: judged[n].scored(correction) for n in fold.tolist()}
    return [scores[n] for n in range(len(groups))]


def _fitted(groups: Sequence[Pixels], penalty: float) -> Correction:
    from scipy.optimize import minimize

    x = np.concatenate([group.x for group in groups], dtype=np.float64)
    y = np.concatenate([group.y for group in groups])
    (n, n_labels), at = x.shape, np.arange(len(y))
    occurs = np.bincount(np.concatenate([np.unique(group.y) for group in groups]), minlength=n_labels)
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
