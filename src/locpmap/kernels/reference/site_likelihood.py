"""Negative log of the conditionals ``p(y_i | neighbours)`` of sites, and its slopes.

With M samples y^1..y^M of the neighbours, a site adds ``-log of the mean over m of p(y_i | y^m)``.  One sample, the
true labels, is pseudolikelihood; several drawn by a decoder are the consistent objective.  The derivative by the local
score of label k given sample m is::

    share_m · (p(k | y^m) - 1{k = y_i}),    share_m = p(y_i | y^m) / Σ_m' p(y_i | y^m')
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.kernels.observations import Observations
from locpmap.kernels.reference.linear_scores import add_pair_slope, add_site_slope, pair_table, site_features

Array = npt.NDArray[Any]


def site_likelihood(
    data: Observations,
    labels: Array,
    samples: Array,
    site_weights: Array,
    weights: Array,
    tables: Array,
    value: Array,
    slope: Array,
    table_slope: Array,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Add the loss and its slopes for images lo..hi and sites begin..stop.

    ``value`` is (1,), ``slope`` (D + 1, L), ``table_slope`` (G, F, L, L).  ``labels`` (N, S) and ``samples`` (N, S, M)
    are -1 where void: such a site adds nothing and is nobody's neighbour.  ``site_weights`` is (1|N, 1|S).
    """
    n_samples, n_labels = samples.shape[2], weights.shape[1]
    everywhere = np.broadcast_to(site_weights, labels.shape)
    for n in range(lo, hi):
        for i in range(begin, stop):
            true = labels[n, i]
            if true < 0:
                continue
            neighbours = [  # (slot, sample, label)
                (slot, m, samples[n, data.neighbour[slot], m])
                for slot in range(data.indptr[i], data.indptr[i + 1])
                for m in range(n_samples)
                if samples[n, data.neighbour[slot], m] >= 0
            ]
            scores = np.tile(site_features(data, n, i) @ weights, (n_samples, 1))
            for slot, m, label in neighbours:
                scores[m] += pair_table(data, tables, n, slot)[:, label]
            log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
            log_sum = np.logaddexp.reduce(log_p[:, true])
            share = np.exp(log_p[:, true] - log_sum)
            value[0] += everywhere[n, i] * (np.log(n_samples) - log_sum)
            residual = everywhere[n, i] * share[:, None] * (np.exp(log_p) - (np.arange(n_labels) == true))
            add_site_slope(data, n, i, residual.sum(axis=0), slope)
            for slot, m, label in neighbours:
                add_pair_slope(data, n, slot, np.outer(residual[m], np.arange(n_labels) == label), table_slope)
