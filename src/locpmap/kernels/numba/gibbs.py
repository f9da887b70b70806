"""Numba version of `reference.gibbs`: one sweep.  Per site: one call of Philox and at most L exponentials."""

import math

import numpy as np

from locpmap.kernels.model import CONDITIONAL, VOTES
from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.noise import first_above, site_words, uniform
from locpmap.kernels.reference.noise import CHAIN


@kernel
def gibbs(model, labels, totals, adds, temperature, k0, k1, sweep, first_image, lo, hi, begin, stop):
    """Update images lo..hi at positions begin..stop of the model's order; labels (N, S), totals (N, S, L)."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    site_id, n_labels = model.site_id, model.unary.shape[2]
    scores, coldness = np.empty(n_labels), 1 / temperature
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            for k in range(n_labels):
                scores[k] = unary[n, i, k]
            for slot in range(indptr[i], indptr[i + 1]):
                edge, label = edges[slot], labels[n, neighbour[slot]]
                if potts:
                    scores[label] += potts_weight(features, n, edge)
                    continue
                for k in range(n_labels):
                    scores[k] += table_score(features, tables, n, edge, ends[slot], k, label)
            top = scores[0]
            for k in range(1, n_labels):
                top = max(top, scores[k])
            drawn = labels[n, i]
            if top > -np.inf:
                total = 0.0
                for k in range(n_labels):
                    scores[k] = 1.0 if scores[k] == top else math.exp((scores[k] - top) * coldness)
                    total += scores[k]
                threshold = uniform(site_words(k0, k1, CHAIN, first_image + n, sweep, site_id[i], 0)[0]) * total
                drawn = first_above(scores, threshold)
                labels[n, i] = drawn
                if adds == CONDITIONAL:
                    for k in range(n_labels):
                        totals[n, i, k] += scores[k] / total
            elif adds == CONDITIONAL:
                totals[n, i, drawn] += 1
            if adds == VOTES:
                totals[n, i, drawn] += 1
