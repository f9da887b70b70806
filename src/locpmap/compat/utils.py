"""The functions of ``pydensecrf.utils``, under the same names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.compat.kernels import Kernel
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


def create_pairwise_gaussian(sdims: Sequence[float], shape: Sequence[int]) -> Kernel:
    """Return a Gaussian kernel for ``DenseCRF2D.addPairwiseEnergy``.

    In pydensecrf this is an array of features; here it is an object that only ``addPairwiseEnergy`` accepts.

    Args:
        sdims (pair of float): Standard deviations of rows and columns, in pixels.  Note that ``addPairwiseGaussian``
            takes (horizontal, vertical).
        shape (pair of int): Size (H, W) of the image.

    Returns:
        Kernel: The kernel.

    Example:
        >>> create_pairwise_gaussian((3, 3), (20, 30)).spread
        (3.0, 3.0)
    """
    sizes = to_numpy(shape, "shape")
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
        raise InputError(f"shape is {shape!r}, expected (H, W) as whole numbers")
    return Kernel(spread_of("sdims", sdims), _plane("shape", tuple(sizes.tolist())))


def create_pairwise_bilateral(
    sdims: Sequence[float], schan: float | Sequence[float], img: Any, chdim: int = -1
) -> Kernel:
    """Return a bilateral kernel for ``DenseCRF2D.addPairwiseEnergy``, for images with any number of channels.

    Args:
        sdims (pair of float): Standard deviations of rows and columns, in pixels.
        schan (float or sequence): Standard deviation of the channel values, or one per channel.
        img (array): Image of shape (H, W), or with an additional axis of channels.
        chdim (int, default -1): Axis of the channels.  As in pydensecrf, -1 means that there is none.

    Returns:
        Kernel: The kernel.

    Example:
        >>> create_pairwise_bilateral((8, 8), 13, np.zeros((20, 30, 3)), chdim=2).shape
        (20, 30)
    """
    image, chdim = to_numpy(img, "img"), whole_number("chdim", chdim, -3, 2)
    if image.ndim != (2 if chdim == -1 else 3):
        expected = "(H, W) for chdim=-1" if chdim == -1 else "(H, W) and an axis of channels"
        raise InputError(f"img has shape {image.shape}, expected {expected}")
    if not np.isfinite(image).all():
        raise InputError("img holds NaN or infinity, expected finite numbers")
    channels = image[None] if chdim == -1 else np.moveaxis(image, chdim, 0)
    spread = to_numpy(schan, "schan").astype(np.float32).reshape(-1)
    if len(spread) not in (1, len(channels)) or not (spread > 0).all():
        raise InputError(f"schan is {schan!r}, expected a number above 0, or {len(channels)} of them")
    guide = np.ascontiguousarray(channels.astype(np.float32) / spread[:, None, None])
    return Kernel(spread_of("sdims", sdims), _plane("img", guide.shape[1:]), guide)


def spread_of(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """Return two numbers above 0; a single number is used for both."""
    numbers = to_numpy(value, name).astype(np.float64).ravel()
    numbers = np.repeat(numbers, 2) if np.ndim(value) == 0 else numbers
    if len(numbers) != 2 or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise InputError(f"{name} is {value!r}, expected two numbers above 0: a grid has two dimensions")
    return float(numbers[0]), float(numbers[1])


def _plane(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"{name} has shape {shape}, expected (H, W)")
    return shape[0], shape[1]
