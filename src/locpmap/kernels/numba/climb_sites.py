"""Numba version of `reference.climb_sites`: ICM on perturbed unaries for any graph and any table.

A sweep skips sites if no neighbour changed since their last visit.  This does not change the result.
Memory per call: the perturbed unaries of one sample, S·L values.
"""

import numpy as np

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.perturbing import perturb


@kernel
def climb_sites(model, perturbation, start, given, max_sweeps, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a label, (hi - lo, R)."""
    unary, site_id = model.unary, model.site_id
    potts, features, tables, order = model.potts, model.features, model.tables, model.order
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    n_sites, n_labels, n_samples = unary.shape[1], unary.shape[2], labels.shape[2]
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    noisy = np.empty((n_sites, n_labels), unary.dtype)
    y = np.empty(n_sites, np.int32)
    scores = np.empty(n_labels)
    dirty = np.empty(n_sites, np.bool_)
    for n in range(lo, hi):
        for s in range(n_samples):
            perturb(noisy, y, unary, n, perturbation, start, given, first_image + n, first_sample + s, site_id)
            dirty[:] = True
            for sweep in range(1, max_sweeps + 1):
                for i in order:
                    if not dirty[i]:
                        continue
                    dirty[i] = False
                    for k in range(n_labels):
                        scores[k] = noisy[i, k]
                    for slot in range(indptr[i], indptr[i + 1]):
                        edge, label = edges[slot], y[neighbour[slot]]
                        if potts:
                            scores[label] += potts_weight(features, n, edge)
                            continue
                        for k in range(n_labels):
                            scores[k] += table_score(features, tables, n, edge, ends[slot], k, label)
                    best = 0
                    for k in range(1, n_labels):
                        best = k if scores[k] > scores[best] else best
                    if scores[best] > scores[y[i]]:
                        y[i] = best
                        sweeps[n - lo, s] = sweep
                        for slot in range(indptr[i], indptr[i + 1]):
                            dirty[neighbour[slot]] = True
                if sweeps[n - lo, s] < sweep:
                    break
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps
