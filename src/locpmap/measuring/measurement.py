"""What a measurement says: the distribution of each number over the samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from locpmap.arrays import Array, to_numpy
from locpmap.errors import InputError, InputTypeError
from locpmap.measuring.quantities import NAMES

MAX_ROWS = 24  # of the table that is printed


@dataclass(frozen=True, eq=False)
class Measurement:
    """Mean, spread and quantiles of a quantity per label (or entry of a callable's vector), over samples.

    Shapes: (.., K), where ``..`` is the batch axis, if the input had one, and K the number of labels or entries.
    Arrays are NumPy's.  With the M numbers x_m of one label:

    - ``mean`` = Σ x_m / M, ``std`` = sqrt(Σ (x_m - mean)² / (M - 1)), NaN for M = 1;
    - ``standard_error`` = std / sqrt(M): how far the mean may be off because there are only M independent samples;
    - ``quantiles`` and :meth:`interval`: of the M numbers, with linear interpolation between them.

    ``std`` and ``interval`` say how unsure the model is and do not shrink with M; ``standard_error`` does.

    >>> Measurement("area", np.array([[9.0, 7.0], [8.0, 8.0], [10.0, 6.0]]), ("sky", "sea"), (0.1, 0.9))
    area, 3 samples
    label  mean  std  std error  10%  90%
      sky     9    1     0.5774  8.2  9.8
      sea     7    1     0.5774  6.2  7.8
    """

    quantity: str
    values: Array  # (M, .., K) float64
    names: tuple[str, ...]  # of the K labels or entries
    levels: tuple[float, ...]  # of `quantiles`

    @property
    def n_samples(self) -> int:
        """Return the number of samples."""
        return len(self.values)

    @cached_property
    def mean(self) -> Array:
        """(.., K)."""
        return self.values.mean(axis=0)

    @cached_property
    def std(self) -> Array:
        """(.., K)."""
        if self.n_samples == 1:
            return np.full(self.values.shape[1:], np.nan)
        return self.values.std(axis=0, ddof=1)

    @property
    def standard_error(self) -> Array:
        """Return the standard error of the mean, (.., K)."""
        return self.std / math.sqrt(self.n_samples)

    @cached_property
    def quantiles(self) -> Array:
        """Return the quantiles (Q, .., K), in the order of ``levels``."""
        return np.quantile(self.values, self.levels, axis=0)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return the ends (.., K) of the central interval: (1 - level) / 2 of the samples lie below it, as many above.

        >>> values = np.arange(101.0)[:, None]
        >>> low, high = Measurement("area", values, ("0",), (0.5,)).interval(0.9)
        >>> low.round(6).tolist(), high.round(6).tolist()
        ([5.0], [95.0])
        """
        inside = _share("level", level)
        low, high = np.quantile(self.values, [(1 - inside) / 2, (1 + inside) / 2], axis=0)
        return low, high

    def __repr__(self) -> str:
        images = f" in {self.values.shape[1]} images" if self.values.ndim == 3 else ""
        title = f"{self.quantity}{images}, {self.n_samples} samples"
        columns = ["mean", "std", "std error", *(f"{100 * level:g}%" for level in self.levels)]
        numbers = np.stack([self.mean, self.std, self.standard_error, *self.quantiles], axis=-1)
        rows = [self._row(place, numbers[place]) for place in islice(np.ndindex(self.mean.shape), MAX_ROWS)]
        more = [f".. and {self.mean.size - MAX_ROWS} more rows"] if self.mean.size > MAX_ROWS else []
        head = ["image", "label" if self.quantity in NAMES else "entry"][-self.mean.ndim :]
        return "\n".join([title, *_aligned([[*head, *columns], *rows]), *more])

    def _row(self, place: tuple[int, ...], numbers: Array) -> list[str]:
        *image, entry = place
        return [*map(str, image), self.names[entry], *map(_short, numbers)]


def checked_levels(quantiles: object) -> tuple[float, ...]:
    """Return the levels of quantiles as numbers from 0 to 1."""
    array = to_numpy(quantiles, "quantiles")
    if array.ndim != 1 or not array.size or array.dtype == np.bool_ or not ((array >= 0) & (array <= 1)).all():
        raise InputError(f"quantiles is {quantiles!r}, expected a sequence of numbers from 0 to 1")
    return tuple(array.tolist())


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputTypeError(f"{name} is {value!r}, expected a number between 0 and 1")
    if not 0 < value < 1:
        raise InputError(f"{name} is {value}, expected a number between 0 and 1")
    return float(value)


def _short(number: float) -> str:
    return f"{number:.4g}" if abs(number) < 1e4 or abs(number) >= 1e12 else f"{number:.0f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
