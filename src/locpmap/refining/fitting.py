"""Learning of a refiner's weights: scale of the scores, share of similar pixels, presence of labels.

Weights of samples follow (`fitting_samples`). Factors and offsets of labels, and the share of similar pixels, are left
out unless they help.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, Self

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.refining.adapting import Rule, adapted, lattice
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting_samples import START, SampleWeights, fit_samples
from locpmap.refining.groups import means_of_groups
from locpmap.refining.guiding import guided_log_mean_at
from locpmap.refining.model import similarity
from locpmap.refining.per_label import fit_per_label
from locpmap.refining.presence import fit_presence
from locpmap.refining.scoring import Score, score, softmax
from locpmap.refining.weights import STEPS, VOLUME_STEPS, Weights

SHARES = (0.35, 0.55, 0.75, 1.0)
REMOVED = (0.0, 0.03, 0.06, 0.1)
THRESHOLDS = (0.05, 0.4, 0.75)  # the last one is that of the bundled refiner, which has seen no label of the data
N_STANDARD_ERRORS = 1.0  # by which similar pixels have to lower the negative log-likelihood
PIXELS = 2000  # per image, for the scale
LEAST_SCALE = 1e-6  # lower bound, reached by uninformative scores


class Setting(NamedTuple):
    """The share of similar pixels where they agree with the network, and the rule of adaptation."""

    share: float
    rule: Rule


def candidates(
    thresholds: Iterable[float], shares: Iterable[float] = SHARES, removed: Iterable[float] = REMOVED
) -> list[Setting]:
    """Return all combinations of thresholds, shares and values of ``removed``."""
    return [Setting(share, Rule(*rule)) for share, *rule in itertools.product(shares, thresholds, removed)]


class Points(NamedTuple):
    """Scores, guided log means and labels of the lattice of one image."""

    scores: Array  # (P, K)
    guided: Array
    labels: Array  # (P,)
    group: int = 0

    @classmethod
    def of(cls, example: Example, scores: Array) -> Self:
        """Return the points of an example with scaled scores (H, W, K)."""
        places = lattice(*example.labels.shape)
        guided = guided_log_mean_at(scores, Restore()(example.given.image)[0], places, example.given.spacing)
        rows, labels = scores.reshape(-1, scores.shape[-1]), example.labels.ravel()
        return cls(rows[places], guided, labels[places], example.group)

    def scored(self, setting: Setting | None) -> Score:
        """Score the adapted probabilities of a setting, or with None those of the network."""
        if setting is None:
            return score(softmax(self.scores), self.labels)
        own, guided = 1 - setting.share, setting.share
        found = adapted([(self.scores, self.guided)], own, guided, setting.rule)
        part, factor = (float(one[0]) for one in found)
        joined = factor * ((1 + part * (own - 1)) * self.scores + part * guided * self.guided)
        return score(softmax(joined.astype(np.float32)), self.labels)


def fit_share(points: Sequence[Points]) -> Setting:
    """Return the most likely setting, or a share of 0 if its gain is below a standard error over groups of images.

    The share and the threshold are chosen first, then ``removed``. Images without labels on the lattice are
    ignored. If there are no others, the share is 0.
    """
    points = [one for one in points if (one.labels != VOID).any()]
    if not points:
        return Setting(0.0, Rule(THRESHOLDS[-1], 0.0))
    losses = cache(partial(_losses, points))

    def most_likely(settings: Iterable[Setting]) -> Setting:
        return min(settings, key=lambda setting: float(losses(setting).mean()))

    first = most_likely(candidates(THRESHOLDS, removed=REMOVED[1:2]))
    best = most_likely(candidates([first.rule.threshold], [first.share]))
    gains = means_of_groups(losses(None) - losses(best), [one.group for one in points])
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return best if gains.mean() > N_STANDARD_ERRORS * error else Setting(0.0, best.rule)


def _losses(points: Sequence[Points], setting: Setting | None) -> Array:
    """Return the negative log-likelihood of each image."""
    return np.array([one.scored(setting).nll for one in points])


def learn(
    examples: Sequence[Example],
    seed: int,
    prior: SampleWeights = START,
    progress: Callable[[float], None] | None = None,
) -> Weights:
    """Learn the weights at the examples' stride.

    The weights of samples start at ``prior`` and stay close to it if there are few images. ``progress`` is that
    of `fit_samples`.
    """
    stride = float(np.median([example.stride for example in examples]))
    scale = fit_scale(examples, seed)
    correction = fit_per_label(examples, scale, seed)
    of_labels = {} if correction is None else {name: [value] for name, value in correction._asdict().items()}
    base = Weights([max(stride, 1.0)], [scale], **of_labels)
    n_labels = examples[0].scores.shape[-1]
    points, predicted = [], []
    for example in examples:
        scores = base.scaled(example.scores, stride)
        predicted.append(softmax(scores).reshape(-1, n_labels).mean(axis=0))
        if example.given.image is not None:
            points.append(Points.of(example, scores))
    setting = fit_share(points) if points else Setting(0.0, Rule(0.0, 0.0))
    present = [np.isin(np.arange(n_labels), example.labels) for example in examples]
    presence = fit_presence(np.stack(predicted), np.stack(present))
    factors = {"own": [1 - setting.share], "guided": [setting.share], "adaptation": [setting.rule]}
    common = {"typical": typical_similarity(examples), "presence": [presence]}
    return fit_samples(replace(base, **factors, **common), examples, prior, seed, progress)


def sentence_about(weights: Weights) -> str:
    """Return one sentence on what the weights of a fit change, and why they leave the rest as it is.

    >>> sentence_about(Weights([1.0], [0.5]))
    'The fit scales the scores by 0.5. Factors per label and pixels of similar colour did not help enough to be used.'
    """
    parts = {"factors per label": weights.offsets.size > 0, "pixels of similar colour": weights.guided[0] > 0}
    used, unused = ([name for name, is_used in parts.items() if is_used == wanted] for wanted in (True, False))
    first = f"scales the scores by {weights.scales[0]:.3g}" + (f", and uses {' and '.join(used)}" if used else "")
    rest = " and ".join(unused)
    return f"The fit {first}." + (f" {rest[0].upper()}{rest[1:]} did not help enough to be used." if unused else "")


def fit_scale(examples: Sequence[Example], seed: int) -> float:
    """Fit the factor of the scores that maximizes the likelihood of the labels, with independent pixels."""
    from scipy.optimize import minimize

    rng, rows, true = np.random.default_rng(seed), [], []
    for example in examples:
        some = rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]
        rows.append(example.scores.reshape(-1, example.scores.shape[-1])[some])
        true.append(example.labels.ravel()[some])
    x, y = np.concatenate(rows).astype(np.float64), np.concatenate(true)
    x -= x.max(axis=-1, keepdims=True)
    spread = x.std() or 1.0  # makes the optimizer independent of the units of scores
    x /= spread
    at = np.arange(len(y))

    def loss(factor: Array) -> tuple[float, Array]:
        p = np.exp(factor[0] * x)
        p /= p.sum(axis=1, keepdims=True)
        value = -np.log(np.maximum(p[at, y], 1e-300)).mean()
        p[at, y] -= 1
        return float(value), np.array([(x * p).sum() / len(y)])

    found = minimize(loss, np.ones(1), jac=True, method="L-BFGS-B", bounds=[(0, None)])
    return max(float(found.x[0]) / float(spread), LEAST_SCALE)


def typical_similarity(examples: Sequence[Example]) -> Any:
    """Return the mean colour similarity per step, (2,): 0 without images, 1 where images have no such edges.

    For volumes it is one number, over all steps.
    """
    if examples[0].given.image is None:
        return 0.0
    volumes = examples[0].given.spacing is not None
    steps = VOLUME_STEPS if volumes else STEPS
    values = [[similarity(example.given.image, step) for step in steps] for example in examples]
    means = np.mean([[float(one.mean()) if one.size else 1.0 for one in pair] for pair in values], axis=0)
    return float(means.mean()) if volumes else means
