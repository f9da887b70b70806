"""Learning of a refiner's weights: scale, weight of similar pixels, presence of labels, then the weights of samples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.refining.examples import VOID, Example
from locpmap.refining.fitting_samples import START, TOGETHER, SampleWeights, fit_samples
from locpmap.refining.guiding import guided_log_mean_at
from locpmap.refining.presence import fit_presence
from locpmap.refining.scoring import softmax
from locpmap.refining.similarity import similarity
from locpmap.refining.weights import STEPS, Weights

PIXELS = 2000  # per image, for the scale and the weight of similar pixels
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
    scale = fit_scale(examples, seed)
    rng = np.random.default_rng(seed)
    pixels = [_pixels(example, scale, rng) for example in examples]
    own, guided = fit_guided(pixels)
    n_labels = examples[0].scores.shape[-1]
    predicted = [softmax(np.tensordot([own, guided][: len(x)], x, axes=1)).mean(axis=0) for x, _ in pixels]
    present = [np.isin(np.arange(n_labels), example.labels) for example in examples]
    presence = fit_presence(np.stack(predicted), np.stack(present))
    strides = [max(stride, 1.0)]
    plain = Weights(strides, [scale], [own], [guided], typical=typical_similarity(examples), presence=[presence])
    return fit_samples(plain, examples, prior, seed, directions, progress)


def fit_scale(examples: Sequence[Example], seed: int) -> float:
    """Fit the factor of the scores that maximizes the likelihood of the labels, with independent pixels."""
    rng = np.random.default_rng(seed)
    rows = []
    for example in examples:
        some = _places(example, rng)
        rows.append((example.scores.reshape(-1, example.scores.shape[-1])[None, some], example.labels.ravel()[some]))
    (scale,) = _maximum_likelihood(rows)
    return max(scale, LEAST_SCALE)


def fit_guided(pixels: Sequence[tuple[Array, Array]]) -> tuple[float, float]:
    """Fit the factors of the scaled scores and of the guided mean by maximum likelihood of the labels."""
    if len(pixels[0][0]) == 1:
        return 1.0, 0.0
    own, guided = _maximum_likelihood(pixels)
    return (own, guided) if guided > 0 else (1.0, 0.0)


def _pixels(example: Example, scale: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return scaled scores and, if there is an image, guided means (1|2, n, K) of some pixels, and labels (n,)."""
    scores, some = np.float32(scale) * example.scores, _places(example, rng)
    layers = [scores.reshape(-1, scores.shape[-1])[some]]
    if example.given.image is not None:
        layers.append(guided_log_mean_at(scores, Restore()(example.given.image)[0], some))
    return np.stack(layers), example.labels.ravel()[some]


def _places(example: Example, rng: np.random.Generator) -> Array:
    """Choose labelled pixels of an image at random, as places in the flattened image."""
    return rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]


def _maximum_likelihood(pixels: Sequence[tuple[Array, Array]]) -> list[float]:
    """Fit one factor >= 0 per layer by maximum likelihood, from layers (F, n, K) and labels (n,) of pixels."""
    from scipy.optimize import minimize

    x = np.concatenate([rows for rows, _ in pixels], axis=1).astype(np.float64)
    y = np.concatenate([labels for _, labels in pixels])
    x -= x.max(axis=-1, keepdims=True)
    spread = np.array([layer.std() or 1.0 for layer in x])  # makes the optimizer independent of the units of scores
    x /= spread[:, None, None]
    at = np.arange(len(y))

    def loss(factors: Array) -> tuple[float, Array]:
        logits = np.tensordot(factors, x, axes=1)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        value = -np.log(np.maximum(p[at, y], 1e-300)).mean()
        p[at, y] -= 1
        return float(value), np.array([(layer * p).sum() for layer in x]) / len(y)

    start = np.full(len(x), 1 / len(x))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(x))
    return [float(factor) for factor in found.x / spread]


def typical_similarity(examples: Sequence[Example]) -> Any:
    """Return the mean colour similarity per step, (2,): 0 without images, 1 where images have no such edges."""
    if examples[0].given.image is None:
        return 0.0
    values = [[similarity(example.given.image, step) for step in STEPS] for example in examples]
    return np.mean([[float(one.mean()) if one.size else 1.0 for one in pair] for pair in values], axis=0)
