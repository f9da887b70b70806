"""Histograms of the probability of each label, weighted by the probability."""

import numpy as np

from locpmap.arrays import Array


def label_masses(probability: Array, masses: Array) -> None:
    """Fill ``masses`` (L, B): the sum of the label's probabilities (S, L) in each of B equal bins from 0 to 1."""
    n_bins = masses.shape[1]
    for k, column in enumerate(probability.T):
        place = np.minimum((column * n_bins).astype(np.int64), n_bins - 1)
        masses[k] = np.bincount(place, column, n_bins)
