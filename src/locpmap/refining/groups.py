"""Groups of related images, such as the slices of a scan. Standard errors and folds are computed over groups."""

from collections.abc import Sequence

import numpy as np

from locpmap.arrays import Array
from locpmap.refining.scoring import Summed, total


def places_of(groups: Sequence[int]) -> list[Array]:
    """Return the indices of the members of each group, ordered by first member.

    >>> [places.tolist() for places in places_of([7, 3, 7])]
    [[0, 2], [1]]
    """
    numbers = np.asarray(groups)
    return [np.flatnonzero(numbers == group) for group in dict.fromkeys(groups)]


def means_of_groups(values: Array, groups: Sequence[int]) -> Array:
    """Return the mean of each group's values (n, ..), ignoring NaN; NaN if a group has no other values.

    >>> means_of_groups(np.array([1.0, 5.0, 3.0]), [7, 3, 7]).tolist()
    [2.0, 5.0]
    """
    counted = ~np.isnan(values)
    known = np.where(counted, values, 0)
    with np.errstate(invalid="ignore"):
        return np.stack([known[places].sum(axis=0) / counted[places].sum(axis=0) for places in places_of(groups)])


def totals_of_groups(scores: Sequence[Summed], groups: Sequence[int]) -> list[Summed]:
    """Return the score of all pixels of each group."""
    return [total([scores[n] for n in places]) for places in places_of(groups)]
