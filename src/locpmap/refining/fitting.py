"""Learning of a refiner's weights: scale first, then the weight of similar pixels, then pairwise weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, Restore
from locpmap.crf import CRF
from locpmap.errors import unknown
from locpmap.features import Features
from locpmap.graphs.grid import ends_of
from locpmap.learning import FitOptions
from locpmap.refining.areas import fit_areas
from locpmap.refining.examples import VOID, Example
from locpmap.refining.guiding import guided_log_mean
from locpmap.refining.model import pooled
from locpmap.refining.scoring import score, softmax
from locpmap.refining.similarity import similarity
from locpmap.refining.weights import FEATURES, STEPS, Weights

OBJECTIVES = ("likelihood", "area")
PIXELS = 2000  # per image, for the scale and the weight of similar pixels
LEAST_SCALE = 1e-6  # lower bound, reached by uninformative scores
MAX_GUIDED = 100  # images, for the weight of similar pixels
MAX_IMAGES, WINDOW = 30, (72, 96)  # images and window size, for the pairwise weights
MAX_CHECKS = 6  # iterations of the consistent fit, each checked on held-out windows
# Pairwise weights make inference slower. They are used only if they raise the held-out log-likelihood per pixel by more
# than this value, and by more than this number of standard errors.
MIN_GAIN, N_STANDARD_ERRORS = 0.001, 2.0


def learn(examples: Sequence[Example], objective: str, seed: int) -> Weights:
    """Learn the weights at the examples' stride."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    stride = float(np.median([example.stride for example in examples]))
    scale = fit_scale(examples, seed)
    own, guided = fit_guided(examples, scale, seed)
    factor, pairwise, typical = _fit_pairwise(examples, scale, own, guided, seed)
    if guided == 0:  # all factors of the scores then combine into one
        scale, own, factor = scale * factor, 1.0, 1.0
    weights = Weights([max(stride, 1.0)], [scale], [factor * own], [factor * guided], pairwise[None], typical)
    return fit_areas(weights, examples, seed) if objective == "area" else weights


def fit_scale(examples: Sequence[Example], seed: int) -> float:
    """Fit the factor of the scores that maximizes the likelihood of the labels, with independent pixels."""
    rng = np.random.default_rng(seed)
    (scale,) = _maximum_likelihood([_pixels(example, [example.scores], rng) for example in examples])
    return max(scale, LEAST_SCALE)


def fit_guided(examples: Sequence[Example], scale: float, seed: int) -> tuple[float, float]:
    """Fit the factors of the scaled scores and of the guided mean by maximum likelihood of the labels."""
    if examples[0].given.image is None:
        return 1.0, 0.0
    rng = np.random.default_rng(seed)
    chosen = [examples[n] for n in rng.permutation(len(examples))[:MAX_GUIDED]]
    rows = []
    for example in chosen:
        scores = np.float32(scale) * example.scores
        around = Restore()(guided_log_mean(scores[None], Restore()(example.given.image)))[0]
        rows.append(_pixels(example, [scores, around], rng))
    own, guided = _maximum_likelihood(rows)
    return (own, guided) if guided > 0 else (1.0, 0.0)


def _pixels(example: Example, layers: list[Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Choose labelled pixels of an image at random; return their values in each layer, (F, n, K), and labels, (n,)."""
    some = rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]
    rows = np.stack([layer.reshape(-1, layer.shape[-1])[some] for layer in layers])
    return rows.astype(np.float64), example.labels.ravel()[some]


def _maximum_likelihood(pixels: Sequence[tuple[Array, Array]]) -> list[float]:
    """Fit one factor >= 0 per layer by maximum likelihood of the pixels' labels."""
    from scipy.optimize import minimize

    x, y = np.concatenate([rows for rows, _ in pixels], axis=1), np.concatenate([labels for _, labels in pixels])
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


def _fit_pairwise(
    examples: Sequence[Example], scale: float, own: float, guided: float, seed: int
) -> tuple[float, Array, Array]:
    """Fit a factor of the scores and pairwise weights (2, 2); also return the mean similarity per step, (2,)."""
    rng = np.random.default_rng(seed)
    chosen = [examples[n] for n in rng.permutation(len(examples))[:MAX_IMAGES]]
    chosen = [example for example in chosen if (example.labels != VOID).any()]
    n_stop = max(1, len(chosen) // 5)
    seen = [_window(example, scale, own, guided, rng) for example in chosen]
    features, truth = [window[0] for window in seen], [window[1] for window in seen]
    n_labels = chosen[0].scores.shape[-1]
    crf = CRF(n_labels, features=None, unary="temperature", potts=True, non_negative=True, ignore_label=VOID)
    held_out = (features[:n_stop], truth[:n_stop])
    training = (features[n_stop:], truth[n_stop:]) if len(seen) > 1 else held_out
    result = crf.fit(
        *training,
        "consistent",
        validation=held_out,
        options=FitOptions(max_iterations=MAX_CHECKS, standard_errors=False),
        seed=seed,
    )
    factor, *others = (float(w) for w in result.w)
    pairwise = np.zeros((len(STEPS), len(FEATURES)))
    pairwise[:, : len(others) // len(STEPS)] = np.reshape(others, (len(STEPS), -1))
    # The factor of the scores is the same on both sides, so that the gain is that of the pairwise weights alone.
    gains = _losses(factor, *held_out) - _losses(crf, *held_out)
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    if not gains.mean() > max(MIN_GAIN, N_STANDARD_ERRORS * error):
        factor, pairwise = 1.0, np.zeros_like(pairwise)  # the scale fitted to more pixels is more precise
    similarities = [[0.0] * len(STEPS)]
    if chosen[0].given.image is not None:
        similarities = [[_typical(similarity(e.given.image, step)) for step in STEPS] for e in chosen]
    return factor, pairwise, np.mean(similarities, axis=0)


def _typical(values: Any) -> float:
    """Return the mean similarity along a step, 1 where an image has no such edges."""
    return float(values.mean()) if 0 not in values.shape else 1.0


def _losses(model: CRF | float, features: list[Features], labels: list[Array]) -> Array:
    """Return the negative log-likelihood per pixel of each window under a CRF, or under the scores times a factor."""
    found = []
    for window, truth in zip(features, labels, strict=True):
        if isinstance(model, CRF):
            probability = np.asarray(model.infer(window, seed=0).probability)
        else:
            probability = softmax(model * window.unary[0]).reshape(*truth.shape, -1)
        found.append(score(probability, truth).nll)
    return np.array(found)


def _window(
    example: Example, scale: float, own: float, guided: float, rng: np.random.Generator
) -> tuple[Features, Array]:
    """Return the features and labels of a window around a random labelled pixel."""
    labelled = np.argwhere(example.labels != VOID)
    centre = labelled[rng.integers(len(labelled))]
    size = np.minimum(WINDOW, example.labels.shape)
    top, left = (int(n) for n in np.clip(centre - size // 2, 0, np.subtract(example.labels.shape, size)))
    here = slice(top, top + int(size[0])), slice(left, left + int(size[1]))
    unary: Array = np.float32(scale) * example.scores
    if example.given.image is not None:
        unary = pooled(unary[None], Restore()(example.given.image), own, guided)[0]
    unary = unary[here]
    edges = []
    for step in STEPS:
        shape = unary[ends_of(step, *unary.shape[:2])[0]].shape[:2]
        layers: list[Array] = [np.ones(shape, np.float32)]
        if example.given.image is not None:
            layers.append(similarity(example.given.image, step)[0][top : top + shape[0], left : left + shape[1]])
        edges.append(np.stack(layers, axis=-1))
    names = FEATURES[: edges[0].shape[-1]]
    return Features.grid(unary, tuple(edges), pairwise_names=names), example.labels[here]
