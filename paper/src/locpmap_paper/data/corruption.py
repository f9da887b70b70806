"""Noise with a given signal-to-noise ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError, InputTypeError, unknown, whole_number

NOISES = ("gumbel", "gaussian")
POWERS = ("variance", "amplitude")


@dataclass(frozen=True)
class Corruption:
    """Centred noise added to binary images.

    The signal-to-noise ratio is the power of the clean signal divided by the variance σ² of the noise.  With
    ``power="variance"``, the power is the variance of the clean pixels, p(1 - p) for a fraction p of ones.  With
    ``power="amplitude"``, it is the squared step height, 1.

    Gumbel noise is standard Gumbel noise minus its mean (Euler's constant), divided by its standard deviation π/√6.

    Args:
        noise (str): "gumbel" or "gaussian".
        snr (float): Signal-to-noise ratio, positive.
        power (str, default "variance"): "variance" or "amplitude".

    Raises:
        InputError: If an argument has another value.

    Example:
        >>> import numpy as np
        >>> labels = np.zeros((2, 4, 4), np.uint8)
        >>> labels[:, :2] = 1
        >>> Corruption("gaussian", snr=0.25).sigma(labels), Corruption("gaussian", 0.25, "amplitude").sigma(labels)
        (1.0, 2.0)
        >>> Corruption("gumbel", 0.25).apply(labels, sigma=1.0, seed=0).shape
        (2, 4, 4)
    """

    noise: str
    snr: float
    power: str = "variance"

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise unknown("noise", self.noise, NOISES)
        if self.power not in POWERS:
            raise unknown("power", self.power, POWERS)
        if not _is_number(self.snr) or self.snr <= 0:
            raise InputError(f"snr is {self.snr!r}, expected a positive number")

    def sigma(self, labels: object) -> float:
        """Return the standard deviation of the noise for clean binary images.

        Args:
            labels: Binary images of any shape.

        Raises:
            InputError: If the images are not binary, or are constant and ``power`` is "variance".
        """
        fraction = float(_binary(labels).mean(dtype=np.float64))
        power = fraction * (1 - fraction) if self.power == "variance" else 1.0
        if power == 0:
            raise InputError(f"labels are all {fraction:.0f}, expected both 0 and 1: a constant signal has no variance")
        return math.sqrt(power / self.snr)

    def apply(self, labels: object, sigma: float, seed: int) -> npt.NDArray[np.float32]:
        """Add noise to binary images.

        Equal seeds give identical noise.  Appending images does not change the noise of the first ones.

        Args:
            labels: Binary images of any shape.
            sigma (float): Standard deviation of the noise.
            seed (int): Seed of the random generator.

        Returns:
            numpy.ndarray: Noisy images in float32, with the shape of ``labels``.
        """
        clean = _binary(labels)
        if not _is_number(sigma) or sigma < 0:
            raise InputError(f"sigma is {sigma!r}, expected a number of at least 0")
        generator = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        if self.noise == "gaussian":
            noise = generator.standard_normal(clean.shape)
        else:
            noise = (generator.gumbel(size=clean.shape) - np.euler_gamma) * (math.sqrt(6) / math.pi)
        return (clean + sigma * noise).astype(np.float32)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def _binary(labels: object) -> npt.NDArray[np.uint8]:
    try:
        array = np.asarray(labels)
    except ValueError:
        raise InputError("labels is ragged: expected an array with one shape") from None
    if array.dtype.kind not in "fiub":
        raise InputTypeError(f"labels is a {type(labels).__name__} of {array.dtype}, expected real numbers")
    if array.size == 0 or not np.isin(array, (0, 1)).all():
        raise InputError(f"labels of shape {array.shape} hold other values than 0 and 1, expected binary images")
    return array.astype(np.uint8)
