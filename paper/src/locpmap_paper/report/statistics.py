"""Means over seeds with their standard errors.

>>> estimate([0.8, 0.9])
Estimate(mean=0.85, error=0.05, n=2)
>>> estimate([0.8])
Estimate(mean=0.8, error=None, n=1)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SAME = 1e-9  # standard errors below this are rounding errors: all seeds agree


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds with its standard error s / √n, where s² is the unbiased variance; None for one seed."""

    mean: float
    error: float | None
    n: int

    @property
    def errors(self) -> float | None:
        """The distance of the mean from 0 in standard errors; None for one seed or if all seeds agree."""
        if self.error is None or self.error < SAME:
            return None
        return self.mean / self.error

    def is_beyond(self, errors: float) -> bool:
        """Return whether the mean is more than the given number of standard errors away from 0."""
        if self.error is None:
            return False
        return abs(self.mean) > errors * max(self.error, SAME)


def estimate(values: Iterable[float]) -> Estimate | None:
    """Return the mean of the values, one per seed; None if there are none."""
    numbers = list(values)
    n = len(numbers)
    if n == 0:
        return None
    mean = math.fsum(numbers) / n
    if n == 1:
        return Estimate(mean, None, 1)
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in numbers) / (n - 1) / n)
    return Estimate(round(mean, 15), round(error, 15), n)


def paired(left: Mapping[int, float], right: Mapping[int, float]) -> Estimate | None:
    """Return the mean of left - right over the common seeds, so that noise common to both cancels."""
    return estimate(left[seed] - right[seed] for seed in sorted(left.keys() & right.keys()))
