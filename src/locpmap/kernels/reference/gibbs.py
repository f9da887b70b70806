"""One sweep of Gibbs sampling: draw every site's label in turn, given its neighbours' labels.

A label is drawn by inverting the cumulative distribution, labels in natural order, at one uniform per (image, sweep,
site): word 0 of stream CHAIN with the sweep as the sample.  Temperature t samples from ``p(y)^(1/t)``.
"""

from itertools import pairwise

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import CONDITIONAL, VOTES, Model
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import local_scores


def gibbs(
    model: Model,
    labels: Array,
    totals: Array,
    adds: int,
    temperature: float,
    k0: int,
    k1: int,
    sweep: int,
    first_image: int,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Update images lo..hi at positions begin..stop of the model's order (whole colour classes, or parts of one).

    ``labels`` (N, S) are updated in place.  ``adds`` selects what is added to ``totals`` (N, S, L): 1 at the drawn
    label, or its probabilities.  If the neighbours forbid every label of a site, its label does not change.
    """
    bounds = [begin, *(c for c in model.class_ptr.tolist() if begin < c < stop), stop]
    for n in range(lo, hi):
        for first, last in pairwise(bounds):
            sites = model.order[first:last]
            scores = local_scores(model, labels[n].astype(np.int64), n)[sites]
            p = conditional(scores, temperature)
            words = noise.words((k0, k1), noise.CHAIN, first_image + n, sweep, model.site_id[sites])[0]
            possible = scores.max(axis=1) > -np.inf
            labels[n, sites[possible]] = draw(p, noise.uniform(words))[possible]
            if adds == VOTES:
                totals[n, sites, labels[n, sites]] += 1
            elif adds == CONDITIONAL:
                p[~possible] = np.eye(p.shape[1])[labels[n, sites[~possible]]]
                totals[n, sites] += p


def conditional(scores: Array, temperature: float) -> Array:
    """Return ``p(label | neighbours)`` from local scores (n, L); rows sum to 1."""
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp((scores - np.where(top > -np.inf, top, 0)) / temperature)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def draw(p: Array, u: Array) -> Array:
    """Return the first label whose cumulative probability exceeds u; its probability is never 0."""
    cumulative = np.cumsum(p, axis=1)
    return np.minimum((cumulative <= u[:, None] * cumulative[:, -1:]).sum(axis=1), p.shape[1] - 1)
