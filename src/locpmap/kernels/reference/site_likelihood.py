"""Negative log of the conditionals ``p(y_i | neighbours)`` of sites, and its derivatives in the local scores.

With M samples y^1..y^M of the neighbours, the loss of a site is ``-log mean_m p(y_i | y^m)``.  One sample, the true
labels, gives pseudolikelihood; several samples drawn by a decoder give the consistent objective.  The derivative with
respect to the local score of label k given sample m is::

    share_m · (p(k | y^m) - 1{k = y_i}),    share_m = p(y_i | y^m) / Σ_m' p(y_i | y^m')

A forbidden true label (score -inf) has an infinite loss, and the samples have equal shares, as in a cross entropy.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.likelihood import Losses, Part, Scores
from locpmap.kernels.reference.pair_gradient import pair_table


def site_likelihood(scores: Scores, labels: Array, samples: Array, weights: Array, losses: Losses, part: Part) -> None:
    """Write the losses (N, S) and residuals (N, S, M, L) of the sites of a part.

    ``labels`` (N, S) and ``samples`` (N, S, M) are -1 at void sites, which have loss 0 and do not influence their
    neighbours.  ``weights`` (1|N, 1|S) multiply losses and residuals.
    """
    n_samples, n_labels = samples.shape[2], scores.unary.shape[2]
    value, residual = losses.value, losses.residual
    weights = np.broadcast_to(weights, labels.shape)
    for n in range(part.lo, part.hi):
        for i in range(part.begin, part.stop):
            true = labels[n, i]
            value[n, i], residual[n, i] = 0, 0
            if true < 0:
                continue
            local = np.tile(scores.unary[n, i].astype(np.float64), (n_samples, 1))
            for slot in range(scores.indptr[i], scores.indptr[i + 1]):
                table = pair_table(scores, n, slot)
                for m, label in enumerate(samples[n, scores.neighbour[slot]]):
                    if label >= 0:
                        local[m] += table[:, label]
            log_p = local - np.logaddexp.reduce(local, axis=1, keepdims=True)
            log_sum = np.logaddexp.reduce(log_p[:, true])
            allowed = log_sum > -np.inf
            share = np.exp(log_p[:, true] - log_sum) if allowed else np.full(n_samples, 1 / n_samples)
            value[n, i] = weights[n, i] * (np.log(n_samples) - log_sum)
            residual[n, i] = weights[n, i] * share[:, None] * (np.exp(log_p) - (np.arange(n_labels) == true))
