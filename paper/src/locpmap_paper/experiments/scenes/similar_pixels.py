"""Weights of scores and of the mean prediction at similar pixels, learned by maximum likelihood per pixel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from locpmap.refining import guided_log_mean
from locpmap_paper.data.scenes import VOID
from locpmap_paper.experiments.experiment import Array

PIXELS = 2000  # per image
MOST_IMAGES = 100
LEAST_SCALE = 1e-6  # for uninformative scores


def around(scores: Array, image: Array) -> Array:
    """Return the log of the mean softmax of scores (H, W, K) at nearby pixels of similar colour."""
    colours = image.astype(np.float32)
    low, high = colours.min((0, 1)), colours.max((0, 1))
    colours = (colours - (low + high) / 2) / max((high - low).max() / 2, 1)  # centring preserves small differences
    found: Array = guided_log_mean(scores[None], np.ascontiguousarray(np.moveaxis(colours, -1, 0))[None])[0]
    return found


def fit_scale(logits: Sequence[Array], labels: Sequence[Array], seed: int) -> float:
    """Return the factor of the logits under which the labels are most likely."""
    rng = np.random.default_rng(seed)
    (scale,) = _likeliest([_pixels([one], truth, rng) for one, truth in zip(logits, labels, strict=True)])
    return max(scale, LEAST_SCALE)


def fit_similar(
    scores: Sequence[Array], images: Sequence[Array], labels: Sequence[Array], seed: int
) -> tuple[float, float]:
    """Return the factors of the scores and of the mean prediction at similar pixels."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(scores))[:MOST_IMAGES]
    own, guided = _likeliest([_pixels([scores[n], around(scores[n], images[n])], labels[n], rng) for n in chosen])
    return (own, guided) if guided > 0 else (1.0, 0.0)


def _pixels(layers: list[Array], labels: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw labelled pixels of an image: their rows in each layer (F, n, K), and their labels (n,)."""
    some = rng.permutation(np.flatnonzero(labels.ravel() != VOID))[:PIXELS]
    rows = np.stack([layer.reshape(-1, layer.shape[-1])[some] for layer in layers])
    return rows.astype(np.float64), labels.ravel()[some]


def _likeliest(pixels: Sequence[tuple[Array, Array]]) -> list[float]:
    """Return the factors >= 0 of the layers under which the labels are most likely."""
    x, y = np.concatenate([rows for rows, _ in pixels], axis=1), np.concatenate([labels for _, labels in pixels])
    x -= x.max(axis=-1, keepdims=True)
    spread = np.array([layer.std() or 1.0 for layer in x])  # makes the optimisation independent of the units of scores
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
