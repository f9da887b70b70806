"""Guided mean: the mean prediction at nearby pixels of similar colour."""

from typing import Any

import numpy as np

from locpmap.arrays import Array, is_tensor, namespace, place_like, to_numpy
from locpmap.errors import InputError
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.placement import has_kernels
from locpmap.kernels.threads import Threads, available_threads, ranges
from locpmap.refining.scoring import softmax

RANGE = 0.1  # scale of squared colour distances, as a multiple of the image's colour variance
RADII = (8, 16, 32, 64)  # pixels
N_DIRECTIONS = 8
LEAST = 1e-6  # lower bound of the means before the logarithm


def guided_log_mean(scores: Any, image: Any, masked: Any = None, variance: float | None = None) -> Any:
    """Compute the logarithm of the mean softmax at nearby pixels of similar colour.

    Each pixel i is combined with 32 points j on four rings around it (radius 8, 16, 32 and 64 pixels, eight points
    each)::

        g_i = log (Σ_j w_ij softmax(z_j) / Σ_j w_ij),   w_ij = exp(-‖x_i - x_j‖² / (0.1 · variance of the colours x))

    The sums include i itself. They exclude masked points and points outside the image.

    Args:
        scores (array or tensor): Scores z, (N, H, W, K). A score of -inf forbids a label.
        image (array or tensor): Colours x, (N, C, H, W), in the same library and on the same device as the scores.
        masked (array or tensor, default None): Booleans (N, H, W), True where a pixel is excluded.
        variance (float, default None): Variance of the colours, summed over channels. By default it is computed per
            image; give it where ``image`` is a window of a larger image.

    Returns:
        array or tensor: The values g, (N, H, W, K), at least ``log(1e-6)``.

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
    if image.shape[:1] + image.shape[2:] != scores.shape[:3]:
        shapes = f"{tuple(image.shape)} and scores {tuple(scores.shape)}"
        raise InputError(f"image has shape {shapes}, expected (N, C, H, W) and (N, H, W, K)")
    if is_tensor(scores) and not has_kernels(scores.device):
        hidden = None if masked is None else to_numpy(masked, "masked")
        found = guided_log_mean(to_numpy(scores, "scores"), to_numpy(image, "image"), hidden, variance)
        return place_like(scores, found)
    scores = scores.contiguous() if is_tensor(scores) else scores  # as the kernel reads and writes it
    if variance is None:
        spread = [_variance(one if masked is None else one[:, ~masked[n]]) for n, one in enumerate(image)]
    else:
        spread = [variance] * len(image)
    sharp = [1 / (RANGE * one) if one > 0 else 0.0 for one in spread]  # 0: an unweighted mean, for a uniform image
    found = xp.empty_like(scores)
    for n, sharpness in enumerate(sharp):
        counted = xp.ones_like(scores[n, ..., 0], dtype=bool) if masked is None else ~masked[n]
        fill = _fill_tensor if is_tensor(scores) else _fill_array
        fill(scores[n], image[n], counted, sharpness, found[n])
    return found


def guided_log_mean_at(scores: Array, image: Array, places: Array) -> Array:
    """Compute `guided_log_mean` at some pixels of one image.

    Args:
        scores: Scores (H, W, K).
        image: Colours (C, H, W).
        places: (n,) places of the pixels in the flattened image.

    Returns:
        The values (n, K). Cost: O(33 · n · (K + C)).
    """
    height, width, _ = scores.shape
    rows, columns = np.divmod(places, width)
    colours, spread = image[:, rows, columns], _variance(image)
    sharpness = 1 / (RANGE * spread) if spread > 0 else 0.0
    total, weights = softmax(scores[rows, columns]), np.ones(len(places), scores.dtype)
    for down, right in STEPS:
        y, x = rows + down, columns + right
        inside = np.flatnonzero((y >= 0) & (y < height) & (x >= 0) & (x < width))
        y, x = y[inside], x[inside]
        weight = np.exp(-sharpness * ((colours[:, inside] - image[:, y, x]) ** 2).sum(axis=0))
        total[inside] += weight[:, None] * softmax(scores[y, x])
        weights[inside] += weight
    return np.log((total / weights[:, None]).clip(LEAST, None))


def _fill_array(scores: Any, image: Any, counted: Any, sharpness: float, out: Any) -> None:
    """Fill ``out`` with one range of rows per thread, after the softmax of all rows."""
    height, width, n_labels = scores.shape
    threads, dtype, values = (
        Threads(available_threads()),
        scores.dtype,
        np.empty((height, n_labels, width), scores.dtype),
    )
    rows = ranges(height, threads.n_threads)
    given = (values, np.ascontiguousarray(image, dtype), counted, STEPS, dtype.type(sharpness), out)
    mean = kernel_of("numba", "guided_mean")

    def spread(begin: int, stop: int) -> None:
        values[begin:stop] = np.moveaxis(softmax(scores[begin:stop]), -1, 1)

    def gather(begin: int, stop: int) -> None:
        mean(*given, begin, stop)
        part = out[begin:stop]
        np.log(np.maximum(part, LEAST, out=part), out=part)

    threads.map(spread, rows)
    threads.map(gather, rows)
    threads.close()


def _fill_tensor(scores: Any, image: Any, counted: Any, sharpness: float, out: Any) -> None:
    kernel_of("triton", "guided_mean")(softmax(scores), image, counted, STEPS, sharpness, out)
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


STEPS = rings()
