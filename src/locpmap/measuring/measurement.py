"""The result of `measure`: values of a quantity in all samples, and their statistics."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.errors import InputError, fraction, true_or_false
from locpmap.guarantees.guarantee import guarantee_of
from locpmap.guarantees.source import Source
from locpmap.measuring.quantities import NAMES, OF_VOLUMES

MAX_ROWS = 24  # of the printed table


@dataclass(frozen=True, eq=False)
class Measurement:
    """Statistics of a quantity over samples, returned by :func:`locpmap.measure`.

    Statistics are NumPy arrays of shape (.., K): K is the number of labels, or of entries of a callable's vector, and
    ``..`` is the batch axis, if there is one. ``std`` and :meth:`interval` describe the uncertainty of the quantity
    under the model and do not shrink with the number of samples M. ``standard_error`` does.

    Attributes:
        quantity (str): Name of the quantity.
        values (array): Value of the quantity in each sample, (M, .., K), float64.
        names (tuple of str): Names of the K labels or entries.
        levels (tuple of float): Levels of ``quantiles``.
        source (Source or None): The refiner whose samples were measured, for its guarantee.
        unit (str): Unit of the values in words, such as "pixels"; empty if there is none or it is not known.

    Example:
        >>> lp.Measurement("area", np.array([[9.0, 7.0], [8.0, 8.0], [10.0, 6.0]]), ("sky", "sea"), (0.1, 0.9))
        area, 3 samples
        label  10%  90%  mean  std  std error
          sky  8.2  9.8     9    1     0.5774
          sea  6.2  7.8     7    1     0.5774

    See Also:
        :func:`locpmap.measure`
    """

    quantity: str
    values: Array
    names: tuple[str, ...]
    levels: tuple[float, ...]
    source: Source | None = None
    unit: str = ""

    @property
    def n_samples(self) -> int:
        """Number of samples, M."""
        return len(self.values)

    @cached_property
    def mean(self) -> Array:
        """Mean over the samples, (.., K)."""
        return self.values.mean(axis=0)

    @cached_property
    def std(self) -> Array:
        """Standard deviation over the samples, with divisor M - 1, (.., K); NaN for one sample."""
        if self.n_samples == 1:
            return np.full(self.values.shape[1:], np.nan)
        return self.values.std(axis=0, ddof=1)

    @property
    def standard_error(self) -> Array:
        """Standard error of the mean for independent samples, ``std / sqrt(M)``, (.., K)."""
        return self.std / math.sqrt(self.n_samples)

    @cached_property
    def quantiles(self) -> Array:
        """Quantiles at the Q ``levels``, (Q, .., K), with linear interpolation between values."""
        return np.quantile(self.values, self.levels, axis=0)

    def interval(self, level: float = 0.9, *, guarantee: Any = None, jointly: bool = False) -> tuple[Array, Array]:
        """Return an interval of the quantity: the central part of the samples, or one with a guarantee.

        Args:
            level (float, default 0.9): Fraction of the samples inside the interval, between 0 and 1. A fraction of
                ``(1 - level) / 2`` lies below it, and the same fraction above it. With a guarantee, the smallest
                probability with which the interval contains the true value.
            guarantee (Refiner or Guarantee, default None): A refiner that was calibrated with
                :meth:`locpmap.Refiner.guaranteed` or ``Refiner.fit(.., guarantee=..)``, and whose samples were
                measured. ``print(refiner.guarantee)`` states the assumption.
            jointly (bool, default False): With a guarantee, whether the intervals of all labels of an image contain
                their true values together with this probability, instead of each on its own.

        Returns:
            tuple: Lower and upper ends, (.., K) each. Without a guarantee, they are interpolated linearly between
            values. With one, they are ``mean ± factor · (standard deviation + constant)`` of the first 50 samples,
            and within the range of the quantity, such as 0 to the number of pixels for areas.

        Notes:
            The mean can lie outside the interval: if a label covers many pixels in a few samples and none in the
            others, both ends are 0 and the mean is positive.

        Example:
            >>> values = np.arange(101.0)[:, None]
            >>> low, high = lp.Measurement("area", values, ("0",), (0.5,)).interval(0.9)
            >>> low.round(6).tolist(), high.round(6).tolist()
            ([5.0], [95.0])
        """
        inside = fraction("level", level)
        true_or_false("jointly", jointly)
        if guarantee is not None:
            return guarantee_of(guarantee, self.source).interval(self.quantity, self.values, inside, jointly)
        if jointly:
            raise InputError("jointly is True without a guarantee, expected guarantee= with a calibrated refiner")
        low, high = np.quantile(self.values, [(1 - inside) / 2, (1 + inside) / 2], axis=0)
        return low, high

    def __repr__(self) -> str:
        images = f", batch of {self.values.shape[1]}" if self.values.ndim == 3 else ""
        unit = f" in {self.unit}" if self.unit else ""
        title = f"{self.quantity}{unit}{images}, {self.n_samples} samples"
        columns = [*(f"{100 * level:g}%" for level in self.levels), "mean", "std", "std error"]
        numbers = np.stack([*self.quantiles, self.mean, self.std, self.standard_error], axis=-1)
        rows = [
            [*map(str, image), self.names[entry], *map(_short, numbers[*image, entry])]
            for *image, entry in islice(np.ndindex(self.mean.shape), MAX_ROWS)
        ]
        more = [f".. and {self.mean.size - MAX_ROWS} more rows"] if self.mean.size > MAX_ROWS else []
        head = ["image", "label" if self.quantity in NAMES + OF_VOLUMES else "entry"][-self.mean.ndim :]
        return "\n".join([title, *_aligned([[*head, *columns], *rows]), *more])


def checked_levels(quantiles: object) -> tuple[float, ...]:
    """Check that quantile levels are numbers from 0 to 1, and return them as a tuple."""
    array = to_numpy(quantiles, "quantiles")
    if array.ndim != 1 or not array.size or array.dtype == np.bool_ or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"quantiles is {quantiles!r}, expected a sequence of numbers from 0 to 1")
    return tuple(array.tolist())


def _short(number: float) -> str:
    return f"{number:.4g}" if abs(number) < 1e4 or abs(number) >= 1e12 else f"{number:.0f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
