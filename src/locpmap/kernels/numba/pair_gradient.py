"""Numba version of `reference.pair_gradient`: derivatives of losses with respect to pairwise scores.

Cost per edge and sample: two additions for Potts weights, ``2 · F · L`` multiplications for tables.
"""

import numpy as np

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.likelihood_inputs import length_type, read_only

NO_BLOCKS = np.empty(0, np.int32)


def pair_gradient(scores, samples, residual, block_of, gradient, part):
    """Add the derivatives of the edges of a part to ``gradient``."""
    blocks = NO_BLOCKS if block_of is None else block_of
    given = read_only(scores.edges, scores.group, scores.features, samples, residual, blocks)
    if scores.potts:
        potts_edges(given, gradient, part)
        return
    n_features, n_labels = scores.tables.shape[2:4]
    if n_labels == 2 and samples.shape[2] == 1 and not scores.own_tables:  # it adds to all tables, not to the part's
        two_labels(length_type(n_features, known=n_features in (1, 2)), given, gradient, part)
    else:
        table_edges(given, gradient, part)


@kernel
def potts_edges(given, gradient, part):
    """Add the derivatives in Potts weights: the residual of each end at the label of the other end."""
    edges, _, _, samples, residual, blocks = given
    lo, hi, begin, stop = part
    for n in range(lo, hi):
        for e in range(begin, stop):
            i, j = edges[e, 0], edges[e, 1]
            if len(blocks) and blocks[i] == blocks[j]:
                continue
            total = 0.0
            for m in range(samples.shape[2]):
                if samples[n, j, m] >= 0:
                    total += residual[n, i, m, samples[n, j, m]]
                if samples[n, i, m] >= 0:
                    total += residual[n, j, m, samples[n, i, m]]
            gradient[n, e] += total


@kernel
def two_labels(features_axis, given, gradient, part):
    """Add the derivatives in shared tables for two labels and one sample, where a site's residuals are r and -r."""
    edges, group, features, samples, residual, blocks = given
    lo, hi, begin, stop = part
    n_features, n_groups, n_sites = len(features_axis), gradient.shape[1], samples.shape[1]
    z, near, pull = features.reshape(-1), samples.reshape(-1), residual.reshape(-1)
    z_images = features.shape[1] * n_features if len(features) > 1 else 0
    z_edges = n_features if features.shape[1] > 1 else 0
    # Indexed by group, end and the neighbour's label (void first).
    sums = np.zeros((n_groups * 6 + 1) * n_features)
    for n in range(lo, hi):
        for e in range(begin, stop):
            i, j = edges[e, 0], edges[e, 1]
            if len(blocks) and blocks[i] == blocks[j]:
                continue
            first, second = np.uint64(n * n_sites + i), np.uint64(n * n_sites + j)
            here, there = pull[np.uint64(2) * first + np.uint64(1)], pull[np.uint64(2) * second + np.uint64(1)]
            at = np.uint64((group[e] * 6 + 1 + near[second]) * n_features)
            back = np.uint64((group[e] * 6 + 4 + near[first]) * n_features)
            where = np.uint64(n * z_images + e * z_edges)
            for f in range(n_features):
                feature = z[where + np.uint64(f)]
                sums[at + np.uint64(f)] += feature * here
                sums[back + np.uint64(f)] += feature * there
    for g in range(n_groups):
        for f in range(n_features):
            for label in range(2):
                at, back = sums[(g * 6 + 1 + label) * n_features + f], sums[(g * 6 + 4 + label) * n_features + f]
                gradient[0, g, f, 0, label] -= at
                gradient[0, g, f, 1, label] += at
                gradient[0, g, f, label, 0] -= back
                gradient[0, g, f, label, 1] += back


@kernel
def table_edges(given, gradient, part):
    """Add the derivatives in tables for any number of labels and samples."""
    edges, group, features, samples, residual, blocks = given
    lo, hi, begin, stop = part
    n_features, n_labels, n_samples = features.shape[2], residual.shape[3], samples.shape[2]
    many_images, many_edges, many_gradients = int(len(features) > 1), int(features.shape[1] > 1), int(len(gradient) > 1)
    for n in range(lo, hi):
        for e in range(begin, stop):
            i, j, g = edges[e, 0], edges[e, 1], group[e]
            if len(blocks) and blocks[i] == blocks[j]:
                continue
            for m in range(n_samples):
                here, there = samples[n, i, m], samples[n, j, m]
                for f in range(n_features):
                    feature = features[n * many_images, e * many_edges, f]
                    if there >= 0:
                        for k in range(n_labels):
                            gradient[n * many_gradients, g, f, k, there] += feature * residual[n, i, m, k]
                    if here >= 0:
                        for k in range(n_labels):
                            gradient[n * many_gradients, g, f, here, k] += feature * residual[n, j, m, k]
