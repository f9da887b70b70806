"""Guided mean: the mean prediction at nearby pixels of similar colour."""

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np

from locpmap.arrays import Array, current_device, is_tensor, namespace, place_like, to_numpy
from locpmap.errors import InputError
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.placement import has_kernels
from locpmap.kernels.threads import Threads, available_threads, ranges
from locpmap.refining.scoring import softmax

RANGE = 0.1  # scale of squared colour distances, as a multiple of the image's colour variance
RADII = (8, 16, 32, 64)  # pixels
VOLUME_RADII = (4, 8, 16, 32)  # times the smallest side of a voxel
N_DIRECTIONS = 8
LEAST = 1e-6  # lower bound of the means before the logarithm


def guided_log_mean(
    scores: Any, image: Any, masked: Any = None, variance: float | None = None, spacing: Sequence[float] | None = None
) -> Any:
    """Compute the logarithm of the mean softmax at nearby pixels of similar colour.

    Each pixel i is combined with 32 points j on four rings around it (radius 8, 16, 32 and 64 pixels, eight points
    each)::

        g_i = log (Σ_j w_ij softmax(z_j) / Σ_j w_ij),   w_ij = exp(-‖x_i - x_j‖² / (0.1 · variance of the colours x))

    The sums include i itself. They exclude masked points and points outside the image. In a volume there are 28 points
    on four spheres (radius 4, 8, 16 and 32 times the smallest side of a voxel), each voxel at most once.

    Args:
        scores (array or tensor): Scores z, (N, H, W, K) or (N, D, H, W, K). A score of -inf forbids a label.
        image (array or tensor): Colours x, (N, C, H, W) or (N, C, D, H, W), in the same library and on the same device
            as the scores.
        masked (array or tensor, default None): Booleans (N, H, W) or (N, D, H, W), True where a pixel is excluded.
        variance (float, default None): Variance of the colours, summed over channels. By default it is computed per
            image; give it where ``image`` is a window of a larger image.
        spacing (sequence of float, default None): Sides of a voxel, for volumes; by default all are 1.

    Returns:
        array or tensor: The values g, of the shape of the scores, at least ``log(1e-6)``.

    Notes:
        The mean is over probabilities rather than scores, so that a few overconfident pixels do not dominate it.
        Cost: O(33 · N · H · W · (K + C)).

    Example:
        >>> from locpmap.refining import guided_log_mean
        >>> image = np.array([[[[0.0] * 9 + [9.0] * 9]]])
        >>> scores = np.where(image[0, 0, :, :, None] > 0, [2.0, 0.0], [0.0, 2.0])[None]
        >>> np.exp(guided_log_mean(scores, image))[0, 0, [0, 17], 0].round(3).tolist()
        [0.119, 0.881]

    See Also:
        :class:`locpmap.Refiner`, whose model contains g.
    """
    xp = namespace(scores)
    if image.shape[:1] + image.shape[2:] != scores.shape[:-1]:
        shapes = f"{tuple(image.shape)} and scores {tuple(scores.shape)}"
        raise InputError(f"image has shape {shapes}, expected (N, C, H, W) and (N, H, W, K)")
    if is_tensor(scores) and not has_kernels(scores.device):
        hidden = None if masked is None else to_numpy(masked, "masked")
        found = guided_log_mean(to_numpy(scores, "scores"), to_numpy(image, "image"), hidden, variance, spacing)
        return place_like(scores, found)
    scores = scores.contiguous() if is_tensor(scores) else scores  # as the kernel reads and writes it
    if variance is None:
        spread = [_variance(one if masked is None else one[:, ~masked[n]]) for n, one in enumerate(image)]
    else:
        spread = [variance] * len(image)
    sharp = [1 / (RANGE * one) if one > 0 else 0.0 for one in spread]  # 0: an unweighted mean, for a uniform image
    found = xp.empty_like(scores)
    fill = _fill_tensor if is_tensor(scores) else _fill_array
    for n, sharpness in enumerate(sharp):
        counted = xp.ones_like(scores[n, ..., 0], dtype=bool) if masked is None else ~masked[n]
        if scores.ndim == 4:
            fill(scores[n], image[n], counted, STEPS, sharpness, found[n])
        else:
            found[n] = _in_volume(fill, scores[n], image[n], counted, spheres(spacing or (1.0, 1.0, 1.0)), sharpness)
    return found


def guided_log_mean_at(scores: Array, image: Array, places: Array, spacing: Sequence[float] | None = None) -> Array:
    """Compute `guided_log_mean` at some pixels of one image or volume.

    Args:
        scores: Scores (H, W, K) or (D, H, W, K).
        image: Colours (C, H, W) or (C, D, H, W).
        places: (n,) flat indices of the pixels.
        spacing: As in `guided_log_mean`.

    Returns:
        The values (n, K). Cost: O(33 · n · (K + C)).
    """
    shape, n_labels = scores.shape[:-1], scores.shape[-1]
    rows, flat = scores.reshape(-1, n_labels), image.reshape(len(image), -1)
    here, colours, spread = np.stack(np.unravel_index(places, shape)), flat[:, places], _variance(image)
    sharpness = 1 / (RANGE * spread) if spread > 0 else 0.0
    total, weights = softmax(rows[places]), np.ones(len(places), scores.dtype)
    for step in STEPS if len(shape) == 2 else spheres(spacing or (1.0, 1.0, 1.0)):
        there = here + step[:, None]
        inside = np.flatnonzero(((there >= 0) & (there < np.array(shape)[:, None])).all(axis=0))
        near = np.ravel_multi_index(tuple(there[:, inside]), shape)
        weight = np.exp(-sharpness * ((colours[:, inside] - flat[:, near]) ** 2).sum(axis=0))
        total[inside] += weight[:, None] * softmax(rows[near])
        weights[inside] += weight
    return np.log((total / weights[:, None]).clip(LEAST, None))


def _in_volume(fill: Any, scores: Any, image: Any, counted: Any, steps: Array, sharpness: float) -> Any:
    """Return the means of a volume, by stacking its planes into one image with excluded rows between them.

    A step to a row outside its plane ends in these rows, so kernels for images can be used.
    """
    depth, height, width, n_labels = scores.shape
    between = min(height, int(np.abs(steps[:, 1]).max()))
    moves = np.stack([steps[:, 0] * (height + between) + steps[:, 1].clip(-between, between), steps[:, 2]], axis=1)
    rows = place_like(scores, np.minimum(np.arange(height + between), height - 1))
    counted = counted[:, rows]
    counted[:, height:] = False
    tall = depth * (height + between), width
    scores, image = scores[:, rows].reshape(*tall, n_labels), image[:, :, rows].reshape(len(image), *tall)
    found = namespace(scores).empty_like(scores)
    fill(scores, image, counted.reshape(tall), moves, sharpness, found)
    return found.reshape(depth, height + between, width, n_labels)[:, :height]


def _fill_array(scores: Any, image: Any, counted: Any, steps: Array, sharpness: float, out: Any) -> None:
    """Fill ``out`` with one range of rows per thread, after the softmax of all rows."""
    height, width, n_labels = scores.shape
    dtype, values = scores.dtype, np.empty((height, n_labels, width), scores.dtype)
    given = (values, np.ascontiguousarray(image, dtype), counted, steps, dtype.type(sharpness), out)
    mean = kernel_of("numba", "guided_mean")

    def spread(begin: int, stop: int) -> None:
        values[begin:stop] = np.moveaxis(softmax(scores[begin:stop]), -1, 1)

    def gather(begin: int, stop: int) -> None:
        mean(*given, begin, stop)
        part = out[begin:stop]
        np.log(np.maximum(part, LEAST, out=part), out=part)

    with closing(Threads(available_threads())) as threads:
        rows = ranges(height, threads.n_threads)
        threads.map(spread, rows)
        threads.map(gather, rows)


def _fill_tensor(scores: Any, image: Any, counted: Any, steps: Array, sharpness: float, out: Any) -> None:
    with current_device(scores):
        kernel_of("triton", "guided_mean")(softmax(scores), image, counted, steps, sharpness, out)
    out.clip_(LEAST).log_()


def _variance(colours: Any) -> float:
    """Return the variance of colours (C, ..), summed over channels; 0 where there are none."""
    flat = colours.reshape(len(colours), -1)
    return float(namespace(flat).var(flat, -1, correction=0).sum()) if 0 not in flat.shape else 0.0


def rings() -> Any:
    """Return the steps (32, 2) to the points of the rings: eight per ring, every other ring rotated by 22.5°.

    >>> rings()[:4].tolist()
    [[0, 8], [6, 6], [8, 0], [6, -6]]
    """
    steps = []
    for n, radius in enumerate(RADII):
        angles = (np.arange(N_DIRECTIONS) + n % 2 / 2) * 2 * np.pi / N_DIRECTIONS
        steps.append(np.round(radius * np.stack([np.sin(angles), np.cos(angles)], axis=1)))
    return np.concatenate(steps).astype(np.int64)


def spheres(spacing: Sequence[float]) -> Any:
    """Return the steps (28, 3) to points on spheres: 6 along the axes and 8 along the diagonals, alternately.

    There are fewer steps where a side is more than 8 times another one: some points are then in the same voxel.

    >>> spheres((2.0, 1.0, 1.0))[:6].tolist()
    [[0, 0, 4], [0, 4, 0], [2, 0, 0], [0, 0, -4], [0, -4, 0], [-2, 0, 0]]
    >>> spheres((10.0, 1.0, 1.0))[:4].tolist()
    [[0, 0, 4], [0, 4, 0], [0, 0, -4], [0, -4, 0]]
    """
    along = np.concatenate([np.eye(3)[::-1], -np.eye(3)[::-1]])
    across = np.array(list(itertools.product((-1, 1), repeat=3))) / np.sqrt(3)
    sides = np.asarray(spacing) / min(spacing)
    steps = [radius * (across if n % 2 else along) / sides for n, radius in enumerate(VOLUME_RADII)]
    voxels = dict.fromkeys(map(tuple, np.round(np.concatenate(steps)).astype(np.int64).tolist()))
    voxels.pop((0, 0, 0), None)
    return np.array(list(voxels))


STEPS = rings()
