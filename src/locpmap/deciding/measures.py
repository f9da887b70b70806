"""Overlap measures: their expected value per label, and what a site adds to it.

Let ``counts`` A be the number of sites decided as a label, ``inside`` I the sum of its probability over these sites,
``totals`` P the sum over all sites, and ``presence`` π the probability that the label occurs at all.  If the label
occurs, its probabilities are p / π, so to first order (a ratio of expectations for the expectation of a ratio)

    E[IoU]  = I / U,   U = A + (P - I) / π,   E[Dice] = 2 I / N,   N = A + P / π.

Deciding one more site of probability p as the label raises them by

    IoU: (p (1 + IoU / π) - IoU) / U,         Dice: (2 p - Dice) / N,

an affine function of p, so that the best decision is the argmax of affine functions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from locpmap.arrays import Array

LEAST = 1e-30  # so that labels without mass have value 0


class Overlap(NamedTuple):
    """Expected overlap of every label (L,), and slope and offset of the gain of a site."""

    value: Array
    slope: Array
    offset: Array


Measure = Callable[[Array, Array, Array, Array], Overlap]


def expected_iou(counts: Array, inside: Array, totals: Array, presence: Array) -> Overlap:
    """Return the expected intersection over union."""
    union = np.maximum(counts + (totals - inside) / presence, LEAST)
    value = inside / union
    return Overlap(value, (1 + value / presence) / union, -value / union)


def expected_dice(counts: Array, inside: Array, totals: Array, presence: Array) -> Overlap:
    """Return the expected Dice coefficient."""
    both = np.maximum(counts + totals / presence, LEAST)
    value = 2 * inside / both
    return Overlap(value, 2 / both, -value / both)


OVERLAPS: dict[str, Measure] = {"iou": expected_iou, "dice": expected_dice}


def mean_overlap(value: Array, counts: Array, presence: Array) -> float:
    """Return the expected mean over the labels that occur in the true labels or in the decision.

    A label that is decided counts with its expected overlap.  Another label counts as 0 if it occurs.
    """
    decided = counts > 0
    n_labels = decided.sum() + presence[~decided].sum()
    return float(value[decided].sum() / n_labels) if n_labels else 1.0
