"""The functions of ``pydensecrf.utils``, under the same names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.errors import InputError, whole_number, within


def unary_from_softmax(sm: Any, scale: float | None = None, clip: float | None = 1e-5) -> Array:
    """Return unary energies ``-log p`` of class probabilities.

    Args:
        sm (array): Probabilities of shape (K, ..), classes first.
        scale (float, default None): Mix with the uniform distribution: p becomes ``scale · p + (1 - scale) / K``.
        clip (float, default 1e-5): Smallest probability.  None does not clip; all probabilities must then be above 0.

    Returns:
        ndarray: Energies of shape (K, n_pixels), float32.

    Example:
        >>> np.exp(-unary_from_softmax(np.array([[0.5, 1.0], [0.5, 0.0]]), clip=0.25)).tolist()
        [[0.5, 1.0], [0.5, 0.25]]
    """
    probability = to_numpy(sm, "sm")
    if probability.ndim < 2:
        raise InputError(f"sm has shape {probability.shape}, expected (K, ..): classes first")
    if not (probability >= 0).all():
        raise InputError("sm holds a negative number or NaN, expected probabilities")
    if scale is not None:
        within("scale", scale, 0, 1, open_low=True)
        probability = scale * probability + (1 - scale) / len(probability)
    if clip is not None:
        within("clip", clip, 0, 1)
        probability = np.clip(probability, clip, 1.0)
    if not (probability > 0).all():
        raise InputError("sm holds 0, expected probabilities above 0, or clip=1e-5")
    return -np.log(probability).reshape(len(probability), -1).astype(np.float32)


def unary_from_labels(labels: Any, n_labels: int, gt_prob: float, zero_unsure: bool = True) -> Array:
    """Return unary energies of a label map that is correct with probability ``gt_prob``.

    Args:
        labels (array): Integer labels of any shape.
        n_labels (int): Number of labels, not counting 0 if ``zero_unsure``.
        gt_prob (float): Probability that a label is correct, above 0 and below 1.
        zero_unsure (bool, default True): Whether 0 means "unknown"; labels then start at 1.

    Returns:
        ndarray: Energies of shape (n_labels, n_pixels), float32.

    Example:
        >>> np.exp(-unary_from_labels(np.array([0, 1, 2]), 2, 0.75)).round(3).T.tolist()
        [[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    """
    flat = to_numpy(labels, "labels").ravel()
    if flat.dtype.kind not in "iub":
        raise InputError(f"labels are {flat.dtype}, expected whole numbers")
    within("gt_prob", gt_prob, 0, 1, open_low=True)
    if gt_prob == 1:
        raise InputError(f"gt_prob is {gt_prob}, expected a number below 1: other labels need a probability above 0")
    n_labels = whole_number("n_labels", n_labels, 2, 2**15 - 1)
    most = n_labels if zero_unsure else n_labels - 1
    if flat.size and not (flat.min() >= 0 and flat.max() <= most):
        raise InputError(f"labels run from {flat.min()} to {flat.max()}, expected 0 to {most}")
    energies = np.full((n_labels, flat.size), -np.log((1 - gt_prob) / (n_labels - 1)), np.float32)
    known = flat.astype(np.int64) - int(zero_unsure)
    energies[known, np.arange(flat.size)] = -np.log(gt_prob)
    if zero_unsure:
        energies[:, flat == 0] = np.log(n_labels)
    return energies


def create_pairwise_gaussian(sdims: Any, shape: Sequence[int]) -> Array:
    """Return the features of a Gaussian kernel of position, for ``DenseCRF.addPairwiseEnergy``.

    Args:
        sdims (sequence of float): Standard deviation along each axis, in pixels.  Note that ``addPairwiseGaussian``
            takes (horizontal, vertical).
        shape (sequence of int): Size of the image or volume.

    Returns:
        ndarray: Features of shape (n_axes, n_pixels), float32.

    Example:
        >>> create_pairwise_gaussian((2, 1), (2, 3)).tolist()
        [[0.0, 0.0, 0.0, 0.5, 0.5, 0.5], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]]
    """
    sizes = to_numpy(shape, "shape")
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not (sizes > 0).all():
        raise InputError(f"shape is {shape!r}, expected whole numbers above 0, one per axis")
    places = np.indices(sizes.tolist(), np.float32).reshape(len(sizes), -1)
    return places / spread_of("sdims", sdims, len(sizes))[:, None]


def create_pairwise_bilateral(sdims: Any, schan: Any, img: Any, chdim: int = -1) -> Array:
    """Return the features of a kernel of position and colour, for ``DenseCRF.addPairwiseEnergy``.

    Args:
        sdims (sequence of float): Standard deviation along each axis, in pixels.
        schan (float or sequence): Standard deviation of the channel values, or one per channel.
        img (array): Image or volume, with any number of channels.
        chdim (int, default -1): Axis of the channels.  As in pydensecrf, -1 means that there is none.

    Returns:
        ndarray: Features of shape (n_axes + n_channels, n_pixels), float32.

    Example:
        >>> create_pairwise_bilateral((8, 8), 13, np.zeros((20, 30, 3)), chdim=2).shape
        (5, 600)
    """
    image = to_numpy(img, "img")
    chdim = whole_number("chdim", chdim, -1, image.ndim - 1)
    channels = image[None] if chdim == -1 else np.moveaxis(image, chdim, 0)
    if np.size(sdims) != channels.ndim - 1:
        axes = f"{channels.ndim - 1} axes{' and no channels' if chdim == -1 else ' and one of channels'}"
        raise InputError(f"sdims is {sdims!r}, but img has shape {image.shape}: with chdim={chdim}, {axes}")
    colours = channels.reshape(len(channels), -1).astype(np.float32) / spread_of("schan", schan, len(channels))[:, None]
    return np.concatenate([create_pairwise_gaussian(sdims, channels.shape[1:]), colours])


def spread_of(name: str, value: Any, n: int) -> Array:
    """Return n standard deviations; a single number is used for all."""
    numbers = to_numpy(value, name).astype(np.float32).ravel()
    if len(numbers) not in (1, n) or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise InputError(f"{name} is {value!r}, expected a number above 0, or {n} of them")
    return np.broadcast_to(numbers, n)
