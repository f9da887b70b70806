"""Numba version of `reference.gibbs_clusters`: disjoint sets, one call of Philox per four edges and per cluster."""

import math

import numpy as np

from locpmap.kernels.model import CONDITIONAL, VOTES
from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.edge_scores import potts_weight
from locpmap.kernels.numba.noise import first_above, pick, site_words, uniform
from locpmap.kernels.reference.noise import CHAIN


@kernel
def gibbs_clusters(model, labels, totals, adds, temperature, k0, k1, sweep, first_image, lo, hi):
    """Update the labels (N, S) of images lo..hi by clusters of equal labels."""
    unary, features, edges, site_id = model.unary, model.features, model.edges, model.site_id
    n_sites, n_labels = unary.shape[1], unary.shape[2]
    root = np.empty(n_sites, np.int32)
    scores = np.empty((n_sites, n_labels))
    drawn = np.empty(n_sites, np.int32)
    for n in range(lo, hi):
        image = first_image + n
        for i in range(n_sites):
            root[i] = i
            for k in range(n_labels):
                scores[i, k] = 0.0
        words = site_words(k0, k1, CHAIN, image, sweep, 0, 1)
        for e in range(len(edges)):
            if e & 3 == 0:
                words = site_words(k0, k1, CHAIN, image, sweep, e >> 2, 1)
            i, j = edges[e, 0], edges[e, 1]
            if labels[n, i] != labels[n, j]:
                continue
            if uniform(pick(words, e & 3)) < -math.expm1(-potts_weight(features, n, e) / temperature):
                a, b = find(root, i), find(root, j)
                root[max(a, b)] = min(a, b)  # a cluster has the number of its first site
        for i in range(n_sites):
            r = find(root, i)
            for k in range(n_labels):
                scores[r, k] += unary[n, i, k]
        for i in range(n_sites):
            if root[i] == i:
                drawn[i] = draw_label(scores[i], temperature, site_words(k0, k1, CHAIN, image, sweep, site_id[i], 0)[0])
        for i in range(n_sites):
            r = find(root, i)
            labels[n, i] = drawn[r]
            if adds == CONDITIONAL:
                for k in range(n_labels):
                    totals[n, i, k] += scores[r, k]
            elif adds == VOTES:
                totals[n, i, drawn[r]] += 1


@inner
def find(root, i):
    """Return the first site of the cluster of a site; shorten the path to it."""
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i


@inner
def draw_label(scores, temperature, word):
    """Draw a label from the softmax of scores, which are replaced by their probabilities."""
    top = scores[0]
    for k in range(1, len(scores)):
        top = max(top, scores[k])
    total = 0.0
    for k in range(len(scores)):
        scores[k] = 1.0 if scores[k] == top else math.exp((scores[k] - top) / temperature)
        total += scores[k]
    drawn = first_above(scores, uniform(word) * total)
    for k in range(len(scores)):
        scores[k] /= total
    return drawn
