"""Exact samples of a known conditional random field, one per random image."""

from __future__ import annotations

from itertools import product

import numpy as np

from .models import Floats, Ints, grid_edges


def exact_images(
    n_images: int, height: int, width: int, scale: float, coupling: float, rng: np.random.Generator
) -> tuple[Floats, Ints]:
    """Draw images (n, H, W) of standard normal intensities x, and two-label maps from ``p(y | x)`` by enumeration.

    The score is ``Σ_i scale · x_i · y_i + coupling · #(neighbours that agree)``.
    """
    states = np.array(list(product((0, 1), repeat=height * width)), np.int64)
    edges = grid_edges(height, width)
    agree = coupling * (states[:, edges[:, 0]] == states[:, edges[:, 1]]).sum(axis=1)
    images = rng.normal(size=(n_images, height * width))
    scores = scale * images @ states.T + agree
    # Gumbel-max trick: with Gumbel noise on every state, the argmax is an exact sample.
    drawn = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    shape = (n_images, height, width)
    return images.reshape(shape), states[drawn].reshape(shape)
