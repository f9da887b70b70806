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

SAME = 1e-9  # a standard error below this is rounding: the seeds agree


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; its standard error is s / √n with s² the unbiased variance, None for one seed."""

    mean: float
    error: float | None
    n: int

    @property
    def errors(self) -> float | None:
        """How many standard errors the mean is away from 0; None where they cannot be counted."""
        if self.error is None or self.error < SAME:
            return None
        return self.mean / self.error

    def is_beyond(self, errors: float) -> bool:
        """Whether the mean is more than so many standard errors away from 0, or seeds agree that it is away from 0."""
        if self.error is None:
            return False
        return abs(self.mean) > errors * max(self.error, SAME)


def estimate(values: Iterable[float]) -> Estimate | None:
    """The mean of the values, one per seed; None where there are none."""
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
    """The mean of left - right over the seeds that both have: noise that the two share drops out."""
    return estimate(left[seed] - right[seed] for seed in sorted(left.keys() & right.keys()))
