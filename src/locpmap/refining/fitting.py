"""Learning of a refiner's weights: scale, share of similar pixels, presence of labels, then the weights of samples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.adapting import Rule
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting_samples import START, TOGETHER, SampleWeights, fit_samples
from locpmap.refining.fitting_share import Points, Setting, fit_share
from locpmap.refining.presence import fit_presence
from locpmap.refining.scoring import softmax
from locpmap.refining.similarity import similarity
from locpmap.refining.weights import STEPS, Weights

PIXELS = 2000  # per image, for the scale
LEAST_SCALE = 1e-6  # lower bound, reached by uninformative scores


def learn(
    examples: Sequence[Example],
    seed: int,
    prior: SampleWeights = START,
    directions: Array = TOGETHER,
    progress: Callable[[float], None] | None = None,
) -> Weights:
    """Learn the weights at the examples' stride.

    The weights of samples start at ``prior`` and stay close to it if there are few images. ``directions`` and
    ``progress`` are those of `fit_samples`.
    """
    stride = float(np.median([example.stride for example in examples]))
    scale, setting = fit_scale(examples, seed), Setting(0.0, Rule(0.0, 0.0))
    if examples[0].given.image is not None:
        setting = fit_share([Points.of(example, scale) for example in examples])
    n_labels = examples[0].scores.shape[-1]
    predicted = [softmax(np.float32(scale) * example.scores).reshape(-1, n_labels).mean(axis=0) for example in examples]
    present = [np.isin(np.arange(n_labels), example.labels) for example in examples]
    presence = fit_presence(np.stack(predicted), np.stack(present))
    factors = {"own": [1 - setting.share], "guided": [setting.share], "adaptation": [setting.rule]}
    common = {"typical": typical_similarity(examples), "presence": [presence]}
    plain = Weights([max(stride, 1.0)], [scale], **factors, **common)
    return fit_samples(plain, examples, prior, seed, directions, progress)


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
    """Return the mean colour similarity per step, (2,): 0 without images, 1 where images have no such edges."""
    if examples[0].given.image is None:
        return 0.0
    values = [[similarity(example.given.image, step) for step in STEPS] for example in examples]
    return np.mean([[float(one.mean()) if one.size else 1.0 for one in pair] for pair in values], axis=0)
