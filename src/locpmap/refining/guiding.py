"""Scores averaged along like colours: what coarse logits lack at boundaries, the image knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from locpmap.arrays import namespace
from locpmap.graphs.grid import ends_of

RANGE = 0.1  # squared distances of colours that still count, in units of the image's variance
N_DIRECTIONS = 8
LEAST_RADIUS = 4.0


def guided_mean(scores: Any, image: Any, stride: float, variance: float | None = None) -> Any:
    """The mean of the scores (N, H, W, K) around each pixel, of those whose colour is like its own.

    Around pixel i lie rings of radius ``stride`` and ``stride / 2`` (at least 4 and 2 pixels), eight points each::

        g_i = Σ_j w_ij z_j / Σ_j w_ij,   w_ij = exp(-‖x_i - x_j‖² / (0.1 · variance of the colours x))

    j being the points inside the image and i itself.  O(17 · N · S · (K + C)).

    Args:
        scores: One row of K scores per pixel.
        image: (N, C, H, W).
        stride: Pixels to one score of the network.
        variance: That of the colours of a larger image that this is a part of.

    >>> image = np.array([[[[0.0, 0.0, 0.0, 9.0, 9.0, 9.0]]]])
    >>> guided_mean(image.reshape(1, 1, 6, 1) + [0, 1], image, 1.0)[0, 0, :, 0].round(2).tolist()
    [0.0, 0.0, 0.0, 9.0, 9.0, 9.0]
    """
    xp = namespace(scores)
    height, width = image.shape[2:]
    spread = _variances(image) if variance is None else [variance]
    sharp = [1 / (RANGE * one) if one > 0 else 0.0 for one in spread]  # in an image of one colour, a plain mean
    total, weight = xp.zeros_like(scores) + scores, xp.zeros_like(scores[..., :1]) + 1
    for step in ring(stride):
        if abs(step[0]) >= height or abs(step[1]) >= width:
            continue
        here, there = ends_of(step, height, width)
        for n, image_sharp in enumerate(sharp):
            squares = ((image[n][:, here[0], here[1]] - image[n][:, there[0], there[1]]) ** 2).sum(0)
            like = xp.exp(squares * np.float32(-image_sharp))[..., None]
            for first, second in ((here, there), (there, here)):
                total[n][first] += like * scores[n][second]
                weight[n][first] += like
    return total / weight


def _variances(image: Any) -> list[float]:
    """Of the colours of each image, summed over channels."""
    flat = image.reshape(*image.shape[:2], -1)
    return [float(one) for one in ((flat - flat.mean(-1)[..., None]) ** 2).mean(-1).sum(-1)]


def ring(stride: float) -> list[tuple[int, int]]:
    """Steps to one half of the points, none to the left in its own row: the others lie opposite.

    >>> ring(8)[:4]
    [(0, 8), (6, 6), (8, 0), (6, -6)]
    """
    largest = max(float(stride), LEAST_RADIUS)
    angles = np.arange(N_DIRECTIONS // 2) * 2 * np.pi / N_DIRECTIONS
    return [(round(r * np.sin(a)), round(r * np.cos(a))) for r in (largest, largest / 2) for a in angles]
