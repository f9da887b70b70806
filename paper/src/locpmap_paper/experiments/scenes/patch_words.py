"""A vocabulary of small image patches, learned without labels, and the similarity of patches to its words.

Patches are normalised in mean and contrast, whitened, and clustered by k-means.  The response to a word is the mean
distance to all words minus the distance to this one, clipped at 0 ("triangle" coding: Coates, Lee, Ng, AISTATS 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap_paper.experiments.scenes.pixel_features import Channels, Image

Array = npt.NDArray[Any]

SIDE = 6  # side of a patch in pixels of its level
LEVELS = 3  # the image itself, at half its size, and at a quarter
STRIDE = 2  # of patches at the first level: neighbouring patches are nearly equal
SOFT_CONTRAST = 10.0  # added to a patch's variance, to limit the amplification of noise
SOFT_WHITENING = 0.1  # added to the variance in every direction, likewise


@dataclass(frozen=True)
class PatchWords:
    """The words of every level: mean (D,), whitening matrix (D, D) and centres (n_words, D)."""

    levels: tuple[tuple[Array, Array, Array], ...]

    def __call__(self, image: Image) -> Channels:
        """Return the responses (⌈H/2⌉, ⌈W/2⌉, levels · n_words) at every second row and column."""
        shape = (-(-image.shape[0] // STRIDE), -(-image.shape[1] // STRIDE))
        answers = []
        for level, (mean, whitening, centres) in enumerate(self.levels):
            patches = _patches(_at_level(image, level), STRIDE if level == 0 else 1)
            whitened = (patches.reshape(-1, patches.shape[-1]) - mean) @ whitening
            squares = (whitened**2).sum(axis=1, keepdims=True) - 2 * whitened @ centres.T + (centres**2).sum(axis=1)
            distance = np.sqrt(np.maximum(squares, 0))
            nearness = np.maximum(distance.mean(axis=1, keepdims=True) - distance, 0)
            image_of_answers = nearness.reshape(*patches.shape[:2], -1)
            answers.append(enlarge(image_of_answers, 2 ** max(level - 1, 0), shape))
        return np.concatenate(answers, axis=-1)


def halve(values: Channels) -> Channels:
    """Return means over 2 × 2 pixels (⌈H/2⌉, ⌈W/2⌉, C) of values (H, W, C); an odd last row or column is repeated."""
    even = np.pad(values, ((0, values.shape[0] % 2), (0, values.shape[1] % 2), (0, 0)), mode="edge")
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / np.float32(4)


def enlarge(values: Channels, times: int, shape: tuple[int, int]) -> Channels:
    """Repeat each value of (h, w, C) times × times and crop the result to the shape (H, W)."""
    return values.repeat(times, axis=0).repeat(times, axis=1)[: shape[0], : shape[1]]


def learn_words(images: Sequence[Image], n_words: int, *, n_patches: int = 300, seed: int = 0) -> PatchWords:
    """Learn words from ``n_patches`` patches per image and level; 10 s for 100 images and 40 words."""
    from sklearn.cluster import MiniBatchKMeans

    generator = np.random.default_rng(seed)
    levels = []
    for level in range(LEVELS):
        drawn = []
        for image in images:
            patches = _patches(_at_level(image, level), 1)
            patches = patches.reshape(-1, patches.shape[-1])
            drawn.append(patches[generator.choice(len(patches), min(n_patches, len(patches)), replace=False)])
        sample = np.concatenate(drawn)
        mean = sample.mean(axis=0)
        variances, directions = np.linalg.eigh(np.cov(sample, rowvar=False))
        whitening = ((directions / np.sqrt(np.maximum(variances, 0) + SOFT_WHITENING)) @ directions.T).astype(
            np.float32
        )
        clusters = MiniBatchKMeans(n_words, n_init=3, max_iter=30, batch_size=4096, random_state=seed)
        centres = clusters.fit((sample - mean) @ whitening).cluster_centers_
        levels.append((mean, whitening, centres.astype(np.float32)))
    return PatchWords(tuple(levels))


def _at_level(image: Image, level: int) -> Channels:
    """Return the image, halved `level` times."""
    pixels = image.astype(np.float32)
    for _ in range(level):
        pixels = halve(pixels)
    return pixels


def _patches(pixels: Channels, stride: int) -> Channels:
    """Return normalised patches (rows, columns, 3 · SIDE²) around every stride-th pixel."""
    before, after = SIDE // 2, SIDE - 1 - SIDE // 2
    padded = np.pad(pixels, ((before, after), (before, after), (0, 0)), mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIDE, SIDE), axis=(0, 1))[::stride, ::stride]
    patches = windows.reshape(*windows.shape[:2], -1)
    centred = patches - patches.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + SOFT_CONTRAST)
