"""Numba version of `reference.site_likelihood`: negative log conditionals of sites and their residuals.

Cost per site: ``M · degree · F · L`` multiplications and ``M · L`` exponentials.
"""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.likelihood_inputs import length_type, read_only, rows_of_tables


def site_likelihood(scores, labels, samples, weights, losses, part):
    """Write losses and residuals of the sites of a part."""
    value, residual, _ = losses
    graph = read_only(scores.indptr, scores.neighbour, scores.edge, scores.end, scores.group)
    given = read_only(scores.unary, scores.features, labels, samples, weights.astype(np.float64, copy=False))
    rows, strides = (None, (0, 0, 0)) if scores.potts else rows_of_tables(scores, part.lo, part.hi)
    if not scores.potts and scores.unary.shape[2] == 2 and samples.shape[2] == 1:
        ends = read_only(scores.edges, scores.group, edges_of(scores, part.begin, part.stop))
        n_features = scores.features.shape[2]
        known = length_type(n_features, known=n_features in (1, 2))
        two_labels(known, given, ends, rows, strides, value, residual, part)
    else:
        any_sites(given, graph, rows, strides, value, residual, part)


def edges_of(scores, begin, stop):
    """Return the edges with at least one end in begin..stop, without duplicates."""
    if (begin, stop) == (0, scores.unary.shape[1]):
        return np.arange(len(scores.edges))
    slots = slice(scores.indptr[begin], scores.indptr[stop])
    near = scores.neighbour[slots]
    once = (scores.end[slots] == 0) | (near < begin) | (near >= stop)
    return scores.edge[slots][once].astype(np.int64)


@kernel
def two_labels(features_axis, given, ends_of_edges, rows, strides, value, residual, part):
    """Handle two labels and one sample: a logistic regression on the difference of the two labels' scores.

    For speed, the features of an edge are read once for both ends, and arrays are flat.  Differences of table entries
    are computed before the loops.  Indices are unsigned, which avoids the check for negative ones.
    """
    unary, features, labels, samples, weights = given
    edges, group, here_edges = ends_of_edges
    ends, images, first_image = strides
    lo, hi, begin, stop = part
    n_sites, n_features, n_edges = unary.shape[1], len(features_axis), len(here_edges)
    z, near, own, true_labels = features.reshape(-1), samples.reshape(-1), unary.reshape(-1), labels.reshape(-1)
    z_images = features.shape[1] * n_features if len(features) > 1 else 0
    z_edges = n_features if features.shape[1] > 1 else 0
    weight_images, weight_sites = int(len(weights) > 1), int(weights.shape[1] > 1)
    # A void neighbour (-1) has a row of zeros, before the rows of labels 0 and 1.
    n_tables = len(rows) // (4 * n_features) if n_features > 0 else 0
    push = np.zeros((n_tables * 3 + 1) * n_features)
    for table in range(n_tables):
        for f in range(n_features):
            for label in range(2):
                entry = (table * n_features + f) * 4 + 2 * label
                push[(table * 3 + 1 + label) * n_features + f] = rows[entry + 1] - rows[entry]
    from_first_to_second = ends // 4 * 3
    score = np.empty(stop - begin)
    values, pulls = value.reshape(-1), residual.reshape(-1)
    one, two = np.uint64(1), np.uint64(2)
    for n in range(lo, hi):
        tables, start, image = (n - first_image) * images // 4 * 3, n * z_images, n * n_sites
        for i in range(begin, stop):
            at = np.uint64(2 * (image + i))
            score[np.uint64(i - begin)] = np.float64(own[at + one]) - np.float64(own[at])
        for c in range(n_edges if n_features > 0 else 0):
            e = np.uint64(here_edges[c])
            i, j = edges[e, 0], edges[e, 1]
            row = tables + (group[e] * 3 + 1) * n_features
            first = np.uint64(row + near[np.uint64(image + j)] * n_features)
            second = np.uint64(row + from_first_to_second + near[np.uint64(image + i)] * n_features)
            edge_at = np.uint64(start + np.int64(e) * z_edges)
            forth, back = 0.0, 0.0
            for f in range(n_features):
                feature = z[edge_at + np.uint64(f)]
                forth += feature * push[first + np.uint64(f)]
                back += feature * push[second + np.uint64(f)]
            if begin <= i < stop:
                score[np.uint64(i - begin)] += forth
            if begin <= j < stop:
                score[np.uint64(j - begin)] += back
        for i in range(begin, stop):
            here = np.uint64(image + i)
            true = true_labels[here]
            if true < 0:
                values[here] = 0.0
                pulls[two * here] = 0.0
                pulls[two * here + one] = 0.0
                continue
            sign = 1.0 - 2.0 * true
            wrong = sign * score[np.uint64(i - begin)]  # the log-odds of the wrong label
            small = math.exp(-abs(wrong))
            weight = weights[n * weight_images, i * weight_sites]
            values[here] = weight * (max(wrong, 0.0) + math.log1p(small))
            pull = weight * sign * (1.0 if wrong > 0 else small) / (1.0 + small)
            pulls[two * here] = -pull
            pulls[two * here + one] = pull


@kernel
def any_sites(given, graph, rows, strides, value, residual, part):
    """Handle any number of labels and samples; ``rows`` is None if the model is Potts."""
    unary, features, labels, samples, weights = given
    indptr, neighbour, edge, end, group = graph
    ends, images, first_image = strides
    lo, hi, begin, stop = part
    n_labels, n_samples, n_features = unary.shape[2], samples.shape[2], features.shape[2]
    many_images, many_edges = int(len(features) > 1), int(features.shape[1] > 1)
    local, log_true = np.empty((n_samples, n_labels)), np.empty(n_samples)
    weight_images, weight_sites = int(len(weights) > 1), int(weights.shape[1] > 1)
    for n in range(lo, hi):
        for i in range(begin, stop):
            if labels[n, i] >= 0:
                for m in range(n_samples):
                    for k in range(n_labels):
                        local[m, k] = unary[n, i, k]
                for slot in range(indptr[i], indptr[i + 1]):
                    e, j = edge[slot], neighbour[slot]
                    if rows is None:  # a neighbour adds only to the score of its own label
                        agree = features[n * many_images, e * many_edges, 0]
                        for m in range(n_samples):
                            if samples[n, j, m] >= 0:
                                local[m, samples[n, j, m]] += agree
                        continue
                    table = ends * end[slot] + images * (n - first_image) + group[e] * n_features * n_labels * n_labels
                    for m in range(n_samples):
                        label = samples[n, j, m]
                        if label < 0:
                            continue
                        for f in range(n_features):
                            feature = features[n * many_images, e * many_edges, f]
                            row = np.uint64(table + (f * n_labels + label) * n_labels)
                            for k in range(n_labels):
                                local[m, k] += feature * rows[row + np.uint64(k)]
            weight = weights[n * weight_images, i * weight_sites]
            value[n, i] = conditional(local, labels[n, i], weight, log_true, residual, n, i)


@inner
def conditional(local, true, weight, log_true, residual, n, i):
    """Return the loss of a site from its local scores (M, L), which are overwritten; write its residual."""
    n_samples, n_labels = local.shape
    if true < 0:
        for m in range(n_samples):
            for k in range(n_labels):
                residual[n, i, m, k] = 0.0
        return 0.0
    for m in range(n_samples):
        top = local[m, 0]
        for k in range(1, n_labels):
            top = max(top, local[m, k])
        log_true[m] = local[m, true] - top
        total = 0.0
        for k in range(n_labels):
            local[m, k] = math.exp(local[m, k] - top)
            total += local[m, k]
        log_true[m] -= math.log(total)
        for k in range(n_labels):
            local[m, k] /= total
    top = log_true[0]
    for m in range(1, n_samples):
        top = max(top, log_true[m])
    shift = top
    if top == -math.inf:  # the true label is forbidden: an infinite loss, equal shares
        log_true[:] = 0.0
        shift = 0.0
    total = 0.0
    for m in range(n_samples):
        total += math.exp(log_true[m] - shift)
    for m in range(n_samples):
        share = weight * math.exp(log_true[m] - shift) / total
        local[m, true] -= 1.0
        for k in range(n_labels):
            residual[n, i, m, k] = share * local[m, k]
    return -weight * (top + math.log(total / n_samples))
