"""One sweep of Swendsen-Wang sampling for Potts weights w >= 0: draw clusters given labels, then labels given clusters.

Neighbours with equal labels are joined with probability ``1 - exp(-w / temperature)``, and each cluster draws a label
from the sum of its sites' unaries.  The uniform of edge e is word ``e mod 4`` of stream CHAIN, group 1, at site
``e div 4``; that of a cluster is the uniform of its first site in `reference.gibbs`.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import CONDITIONAL, VOTES, Model
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.gibbs import conditional, draw


def gibbs_clusters(
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
) -> None:
    """Update the labels (N, S) of images lo..hi; ``adds`` and ``totals`` are those of `reference.gibbs`."""
    n_sites, n_edges = labels.shape[1], len(model.edges)
    groups = np.arange(-(-n_edges // 4))
    for n in range(lo, hi):
        image, y = first_image + n, labels[n]
        u = noise.uniform(noise.words((k0, k1), noise.CHAIN, image, sweep, groups, 1).T.ravel()[:n_edges])
        weights = np.broadcast_to(model.features[n if len(model.features) > 1 else 0, :, 0], n_edges)
        first, second = model.edges.T
        joined = (y[first] == y[second]) & (u < -np.expm1(-weights / temperature))
        cluster = np.arange(n_sites)
        for i, j in model.edges[joined].tolist():
            a, b = cluster[i], cluster[j]
            cluster[cluster == max(a, b)] = min(a, b)  # a cluster has the number of its first site
        scores = np.zeros(model.unary.shape[1:])
        np.add.at(scores, cluster, model.unary[n].astype(np.float64))
        roots = np.unique(cluster)
        p = np.zeros(scores.shape)
        p[roots] = conditional(scores[roots], temperature)
        words = noise.words((k0, k1), noise.CHAIN, image, sweep, model.site_id[roots])[0]
        drawn = np.zeros(n_sites, np.int64)
        drawn[roots] = draw(p[roots], noise.uniform(words))
        labels[n] = drawn[cluster]
        if adds == VOTES:
            totals[n, np.arange(n_sites), labels[n]] += 1
        elif adds == CONDITIONAL:
            totals[n] += p[cluster]
