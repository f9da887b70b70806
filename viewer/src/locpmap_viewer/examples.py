"""Synthetic example scenes.

Each scene has an image, true labels, and logits that imitate a network of stride 8.  The logits are smooth and
confident inside regions.  They have spatially correlated errors and miss thin structures.
"""

from __future__ import annotations

import numpy as np

HEIGHT, WIDTH = 288, 384
STRIDE = 8  # pixels per logit


def synthetic_scene(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return image (H, W, 3), true labels (H, W) and logits (H / 8, W / 8, K) of one of ``EXAMPLES``.

    Every call returns the same arrays.

    >>> [array.shape for array in synthetic_scene("cells")]
    [(288, 384, 3), (288, 384), (36, 48, 3)]
    """
    _, make, names = EXAMPLES[name]
    rng = np.random.default_rng(list(name.encode()))
    image, truth = make(rng)
    pixels = (255 * np.clip(image, 0, 1)).astype(np.uint8)
    return pixels, truth, _coarse(rng, truth, len(names))


def _islands(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw an aerial view of islands with a road, lit from one side."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] / np.array([HEIGHT, WIDTH]).reshape(2, 1, 1)  # in [0, 1]
    height = _clouds(rng, 3.2, 6) - 0.9 * np.hypot(rows - 0.5, columns - 0.52) + 0.36
    wet = _clouds(rng, 4.0, 5)
    truth = np.array([0, 1, 5, 4])[np.digitize(height, [0.0, 0.05, 0.40])]  # sea, sand, meadow, rock
    truth = np.where((truth == 5) & (wet > 0.12), 2, truth)
    road = np.abs(rows - 0.56 - 0.12 * np.sin(5.5 * columns + 0.6) - 0.1 * _clouds(rng, 2.0, 2)) < 0.011
    truth = np.where(road & np.isin(truth, (1, 2, 5)), 3, truth)
    base = np.array([[31, 78, 107], [214, 196, 152], [62, 92, 58], [196, 188, 178], [139, 131, 122], [142, 160, 92]])
    image = base[truth] / 255
    slope = np.gradient(height * 20, axis=1) - np.gradient(height * 20, axis=0)
    shade = np.where(truth == 0, 1 + 0.55 * np.clip(height, -0.6, 0), 1 + np.clip(1.1 * slope, -0.38, 0.38))
    leaves = np.where(truth == 2, 0.16, 0.05)[..., None] * rng.normal(size=(HEIGHT, WIDTH, 1))
    shallow = np.exp(np.minimum(height, 0) * 16)[..., None] * np.array([0.12, 0.26, 0.22])
    image = image * shade[..., None] * (1 + leaves) + np.where(truth == 0, 1, 0)[..., None] * shallow
    return image + 0.018 * rng.normal(size=image.shape), truth


def _cells(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a microscope image of stained cells with nuclei; some cells touch."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    rows, columns = rows + 9 * _clouds(rng, 5.0, 3), columns + 9 * _clouds(rng, 5.0, 3)
    truth = np.zeros((HEIGHT, WIDTH), np.int64)
    image = np.array([0.955, 0.925, 0.94]) + 0.05 * _clouds(rng, 3.0, 4)[..., None]
    for _ in range(34):
        y, x, radius = rng.uniform(0, HEIGHT), rng.uniform(0, WIDTH), rng.uniform(17, 30)
        angle, squeeze = rng.uniform(0, np.pi), rng.uniform(0.7, 1.0)
        along = (rows - y) * np.sin(angle) + (columns - x) * np.cos(angle)
        across = (rows - y) * np.cos(angle) - (columns - x) * np.sin(angle)
        distance = np.hypot(along * squeeze, across) / radius
        stain = np.array([0.80, 0.58, 0.74]) + rng.normal(0, 0.025, 3)
        body = distance < 1
        rim = 1 - 0.16 * np.exp(-(((distance - 0.95) / 0.07) ** 2))
        image = np.where(body[..., None], stain * rim[..., None], image)
        core = np.hypot(along * squeeze - 3, across + 2) / radius < rng.uniform(0.3, 0.46)
        image = np.where(core[..., None], np.array([0.38, 0.26, 0.52]) + rng.normal(0, 0.03, 3), image)
        truth = np.where(core, 2, np.where(body, 1, truth))
    grain = 0.045 * _clouds(rng, 40.0, 2)[..., None] + 0.022 * rng.normal(size=image.shape)
    return image + grain, truth


EXAMPLES = {  # title, function that draws image and true labels, names of the labels
    "islands": ("Islands", _islands, ("sea", "sand", "forest", "road", "rock", "meadow")),
    "cells": ("Cells", _cells, ("ground", "cell", "nucleus")),
}


def _clouds(rng: np.random.Generator, frequency: float, octaves: int) -> np.ndarray:
    """Return fractal noise (H, W), mostly within ±0.5; each octave has half the wavelength and amplitude."""
    total = np.zeros((HEIGHT, WIDTH))
    for octave in range(octaves):
        down = max(2, round(frequency * 2**octave)) + 1
        across = max(2, round(frequency * 2**octave * WIDTH / HEIGHT)) + 1
        total += 0.5**octave * resized(rng.normal(size=(down, across, 1)), HEIGHT, WIDTH, smooth=True)[..., 0]
    return total / 3.2


def resized(values: np.ndarray, height: int, width: int, *, smooth: bool = False) -> np.ndarray:
    """Resize values (h, w, K) to (H, W, K): linear, or ``smooth`` with zero derivatives at the given pixels."""
    for axis, size in ((0, height), (1, width)):
        old = values.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        left = np.minimum(at.astype(int), max(old - 2, 0))
        fraction = at - left
        fraction = fraction * fraction * (3 - 2 * fraction) if smooth else fraction
        fraction = fraction.reshape(-1, 1, 1) if axis == 0 else fraction.reshape(1, -1, 1)
        right = np.minimum(left + 1, old - 1)
        values = np.take(values, left, axis) * (1 - fraction) + np.take(values, right, axis) * fraction
    return values


def _coarse(rng: np.random.Generator, truth: np.ndarray, n_labels: int) -> np.ndarray:
    """Return logits of stride 8: the logarithm of the label fractions around each cell, plus smooth errors."""
    ratios = np.eye(n_labels)[truth].reshape(HEIGHT // STRIDE, STRIDE, WIDTH // STRIDE, STRIDE, n_labels).mean((1, 3))
    padded = np.pad(ratios, ((1, 1), (1, 1), (0, 0)), mode="edge")
    around = sum(padded[i : i + ratios.shape[0], j : j + ratios.shape[1]] for i in range(3) for j in range(3)) / 9
    logits = np.log(0.55 * ratios + 0.45 * around + 0.03)
    errors = rng.normal(size=logits.shape) * 0.55
    errors += resized(rng.normal(size=(9, 12, n_labels)), *logits.shape[:2]) * 0.95
    return (1.25 * logits + errors).astype(np.float32)
