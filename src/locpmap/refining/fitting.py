"""Learning the weights of a refiner from examples: scale and surroundings first, then neighbours, consistently."""

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
from locpmap.refining.likeness import likeness
from locpmap.refining.model import pooled
from locpmap.refining.scoring import score, softmax
from locpmap.refining.weights import FEATURES, STEPS, Weights

OBJECTIVES = ("likelihood", "area")
PIXELS = 2000  # of an image, that scale and surroundings are learned from
LEAST_SCALE = 1e-6  # of scores that say nothing
MOST_GUIDED = 100  # images that surroundings are learned from
MOST_IMAGES, WINDOW = 30, (72, 96)  # that neighbours are learned from, and how much of each
MOST_CHECKS = 6  # of the consistent fit on held-out windows
WORTH = 0.001  # of likelihood per pixel that coupled neighbours must bring on these, for they cost samples
SURE = 2.0  # and how many standard errors


def learn(examples: Sequence[Example], objective: str, seed: int) -> Weights:
    """The weights at the examples' stride."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    stride = float(np.median([example.stride for example in examples]))
    scale = fit_scale(examples, seed)
    own, guided = fit_surroundings(examples, scale, seed)
    factor, pairwise, typical = _fit_neighbours(examples, scale, own, guided, seed)
    if guided == 0:  # then scores count for what they are, times one number
        scale, own, factor = scale * factor, 1.0, 1.0
    weights = Weights([max(stride, 1.0)], [scale], [factor * own], [factor * guided], pairwise[None], typical)
    return fit_areas(weights, examples, seed) if objective == "area" else weights


def fit_scale(examples: Sequence[Example], seed: int) -> float:
    """The factor of the scores that makes the labels likeliest, pixel by pixel."""
    rng = np.random.default_rng(seed)
    (scale,) = _likeliest([_pixels(example, [example.scores], rng) for example in examples])
    return max(scale, LEAST_SCALE)


def fit_surroundings(examples: Sequence[Example], scale: float, seed: int) -> tuple[float, float]:
    """What scaled scores and what is said of places that look alike count for, by maximum likelihood of the labels."""
    if examples[0].given.image is None:
        return 1.0, 0.0
    rng = np.random.default_rng(seed)
    chosen = [examples[n] for n in rng.permutation(len(examples))[:MOST_GUIDED]]
    rows = []
    for example in chosen:
        scores = np.float32(scale) * example.scores
        around = Restore()(guided_log_mean(scores[None], Restore()(example.given.image)))[0]
        rows.append(_pixels(example, [scores, around], rng))
    own, guided = _likeliest(rows)
    return (own, guided) if guided > 0 else (1.0, 0.0)


def _pixels(example: Example, layers: list[Array], rng: np.random.Generator) -> tuple[Array, Array]:
    """Some labelled pixels of an image: their rows in each layer (F, n, K), and their labels (n,)."""
    some = rng.permutation(np.flatnonzero(example.labels.ravel() != VOID))[:PIXELS]
    rows = np.stack([layer.reshape(-1, layer.shape[-1])[some] for layer in layers])
    return rows.astype(np.float64), example.labels.ravel()[some]


def _likeliest(pixels: Sequence[tuple[Array, Array]]) -> list[float]:
    """Factors >= 0 of the layers that make the labels of pixels likeliest."""
    from scipy.optimize import minimize

    x, y = np.concatenate([rows for rows, _ in pixels], axis=1), np.concatenate([labels for _, labels in pixels])
    x -= x.max(axis=-1, keepdims=True)
    spread = np.array([layer.std() or 1.0 for layer in x])  # so that the units of scores do not matter
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


def _fit_neighbours(
    examples: Sequence[Example], scale: float, own: float, guided: float, seed: int
) -> tuple[float, Array, Array]:
    """A factor of the scores, pairwise weights (2, 2) and the mean likeness per direction, by consistent learning."""
    rng = np.random.default_rng(seed)
    chosen = [examples[n] for n in rng.permutation(len(examples))[:MOST_IMAGES]]
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
        options=FitOptions(max_iterations=MOST_CHECKS, standard_errors=False),
        seed=seed,
    )
    factor, *others = (float(w) for w in result.w)
    pairwise = np.zeros((len(STEPS), len(FEATURES)))
    pairwise[:, : len(others) // len(STEPS)] = np.reshape(others, (len(STEPS), -1))
    gains = _losses(factor, *held_out) - _losses(crf, *held_out)  # by neighbours alone: the scale may have changed, too
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    if not gains.mean() > max(WORTH, SURE * error):
        factor, pairwise = 1.0, np.zeros_like(pairwise)  # then the scale of all pixels stands, which is known better
    likenesses = [[0.0] * len(STEPS)]
    if chosen[0].given.image is not None:
        likenesses = [[_typical(likeness(e.given.image, step)) for step in STEPS] for e in chosen]
    return factor, pairwise, np.mean(likenesses, axis=0)


def _typical(values: Any) -> float:
    """The mean likeness along a step, 1 where an image has no such edges."""
    return float(values.mean()) if 0 not in values.shape else 1.0


def _losses(model: CRF | float, features: list[Features], labels: list[Array]) -> Array:
    """The negative log-likelihood per pixel of each window by a CRF, or by a multiple of its scores alone."""
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
    """A part of an image around one of its labelled pixels, and its labels."""
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
            layers.append(likeness(example.given.image, step)[0][top : top + shape[0], left : left + shape[1]])
        edges.append(np.stack(layers, axis=-1))
    names = FEATURES[: edges[0].shape[-1]]
    return Features.grid(unary, tuple(edges), pairwise_names=names), example.labels[here]
