"""Learning the weights of a refiner from examples: scale and share first, then neighbours, consistently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.crf import CRF
from locpmap.errors import unknown
from locpmap.features import Features
from locpmap.graphs.grid import ends_of
from locpmap.refining.areas import fit_areas
from locpmap.refining.examples import VOID, Example
from locpmap.refining.likeness import likeness
from locpmap.refining.scoring import score, softmax
from locpmap.refining.weights import FEATURES, STEPS, Weights

Array = npt.NDArray[Any]
OBJECTIVES = ("likelihood", "area")
PIXELS = 2000  # of an image, that scale and share are learned from
MOST_IMAGES, WINDOW = 30, (72, 96)  # that neighbours are learned from, and how much of each
MOST_CHECKS = 6  # of the consistent fit on held-out windows
WORTH = 0.001  # of likelihood per pixel that coupled neighbours must bring on these, for they cost samples
SURE = 2.0  # and how many standard errors


def learn(examples: Sequence[Example], objective: str, seed: int) -> Weights:
    """The weights at the examples' stride."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    stride = float(np.median([example.stride for example in examples]))
    guided = examples[0].guided is not None
    coefficients = fit_scales(examples, guided=guided, seed=seed)
    scale = coefficients.sum()
    share = float(coefficients[1] / scale) if guided and scale > 0 else 0.0
    factor, pairwise, typical = _fit_neighbours(examples, scale, share, seed)
    one = np.ones(1)
    weights = Weights(max(stride, 1.0) * one, scale * factor * one, share * one, pairwise[None], typical)
    return fit_areas(weights, examples, seed) if objective == "area" else weights


def fit_scales(examples: Sequence[Example], *, guided: bool, seed: int) -> Array:
    """Factors >= 0 of the scores (and of their guided means) that make the labels likeliest, pixel by pixel."""
    from scipy.optimize import minimize

    rng, rows, truth = np.random.default_rng(seed), [], []
    for example in examples:
        labelled = np.flatnonzero(example.labels.ravel() != VOID)
        some = rng.permutation(labelled)[:PIXELS]
        layers = [example.scores, example.guided] if guided else [example.scores]
        rows.append(np.stack([layer.reshape(-1, layer.shape[-1])[some] for layer in layers if layer is not None]))
        truth.append(example.labels.ravel()[some])
    x, y = np.concatenate(rows, axis=1).astype(np.float64), np.concatenate(truth)  # (F, n, K), (n,)
    x -= x.max(axis=-1, keepdims=True)
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
    return np.asarray(found.x)


def _fit_neighbours(examples: Sequence[Example], scale: float, share: float, seed: int) -> tuple[float, Array, Array]:
    """A factor of the scores, pairwise weights (2, 2) and the mean likeness per direction, by consistent learning."""
    rng = np.random.default_rng(seed)
    chosen = [examples[n] for n in rng.permutation(len(examples))[:MOST_IMAGES]]
    chosen = [example for example in chosen if (example.labels != VOID).any()]
    n_stop = max(1, len(chosen) // 5)
    seen = [_window(example, scale, share, rng) for example in chosen]
    features, truth = [window[0] for window in seen], [window[1] for window in seen]
    n_labels = chosen[0].scores.shape[-1]
    crf = CRF(n_labels, features=None, unary="temperature", potts=True, non_negative=True, ignore_label=VOID)
    held_out = (features[:n_stop], truth[:n_stop])
    training = (features[n_stop:], truth[n_stop:]) if len(seen) > 1 else held_out
    result = crf.fit(
        *training, "consistent", validation=held_out, max_iterations=MOST_CHECKS, seed=seed, standard_errors=False
    )
    factor, *others = (float(w) for w in result.w)
    pairwise = np.zeros((len(STEPS), len(FEATURES)))
    pairwise[:, : len(others) // len(STEPS)] = np.reshape(others, (len(STEPS), -1))
    gains = _losses(None, *held_out) - _losses(crf, *held_out)
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    if not gains.mean() > max(WORTH, SURE * error):
        factor, pairwise = 1.0, np.zeros_like(pairwise)  # then the scale of all pixels stands, which is known better
    likenesses = [[0.0] * len(STEPS)]
    if chosen[0].given.image is not None:
        likenesses = [[float(likeness(e.given.image, step).mean()) for step in STEPS] for e in chosen]
    return factor, pairwise, np.mean(likenesses, axis=0)


def _losses(crf: CRF | None, features: list[Features], labels: list[Array]) -> Array:
    """The negative log-likelihood per pixel of each window by a CRF, or by its scores alone."""
    found = []
    for window, truth in zip(features, labels, strict=True):
        if crf is None:
            probability = softmax(window.unary[0]).reshape(*truth.shape, -1)
        else:
            probability = np.asarray(crf.infer(window, probability="conditional", seed=0).probability)
        found.append(score(probability, truth).nll)
    return np.array(found)


def _window(example: Example, scale: float, share: float, rng: np.random.Generator) -> tuple[Features, Array]:
    """A part of an image around one of its labelled pixels, and its labels."""
    labelled = np.argwhere(example.labels != VOID)
    centre = labelled[rng.integers(len(labelled))]
    size = np.minimum(WINDOW, example.labels.shape)
    top, left = (int(n) for n in np.clip(centre - size // 2, 0, np.subtract(example.labels.shape, size)))
    here = slice(top, top + int(size[0])), slice(left, left + int(size[1]))
    unary: Array = np.float32(scale * (1 - share)) * example.scores[here]
    if share > 0 and example.guided is not None:
        unary = unary + np.float32(scale * share) * example.guided[here]
    edges = []
    for step in STEPS:
        shape = unary[ends_of(step, *unary.shape[:2])[0]].shape[:2]
        layers: list[Array] = [np.ones(shape, np.float32)]
        if example.given.image is not None:
            layers.append(likeness(example.given.image, step)[0][top : top + shape[0], left : left + shape[1]])
        edges.append(np.stack(layers, axis=-1))
    names = FEATURES[: edges[0].shape[-1]]
    return Features.grid(unary, tuple(edges), pairwise_names=names), example.labels[here]
