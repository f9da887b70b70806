"""Negative log conditionals of sites and their slopes, compiled; see the reference for the definition.

Scores are never stored: a site's are made from its features, turned into residuals, and added to the slopes.  Cost per
site: ``M · degree · F · L`` twice, ``D · L`` twice and ``M · L`` exponentials.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.directed_tables import direct, fold
from locpmap.kernels.numba.known_lengths import axes


def site_likelihood(
    data, labels, samples, site_weights, weights, tables, value, slope, table_slope, lo, hi, begin, stop
):
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and sites begin..stop."""
    directed = direct(tables)
    pull = np.zeros_like(directed)
    observed = (data.unary, data.pairwise, labels, samples, site_weights)
    graph = (data.indptr, data.neighbour, data.edge, data.end, data.group)
    window = (lo, hi, begin, stop)
    if weights.shape[1] == 2 and samples.shape[2] == 1:
        sizes = axes(data.unary.shape[2], data.pairwise.shape[2], 2)
        value += two_labels(sizes, observed, graph, weights, directed, slope, pull, window)
    else:
        value += any_labels(observed, graph, weights, directed, slope, pull, window)
    fold(pull, table_slope)


@njit(nogil=True, cache=True, error_model="numpy")
def two_labels(sizes, observed, graph, weights, directed, slope, pull, window):
    """Two labels, one sample: a logistic regression on the features of a site and its edges.

    Written for speed: flat arrays, products taken out of the loops, unsigned indices (which spare the test for
    negative ones).
    """
    unary, pairwise, labels, samples, site_weights = observed
    indptr, neighbour, edge, end, group = graph
    lo, hi, begin, stop = window
    n_groups = len(directed) // 2
    n_sites, n_unary, n_pairwise = unary.shape[1], len(sizes[0]), len(sizes[1])
    images = pairwise.shape[1] * n_pairwise if len(pairwise) > 1 else 0  # from an image's features to the next one's
    weight_images, weight_sites = int(len(site_weights) > 1), int(site_weights.shape[1] > 1)
    x, z, near = unary.reshape(-1), pairwise.reshape(-1), samples.reshape(-1)
    first_slot, n_slots = indptr[begin], indptr[stop] - indptr[begin]
    start = np.empty(n_slots, np.int64)  # of an edge's features in an image's
    zero = np.empty(n_slots, np.int64)  # of the row for a neighbour of label 0 in `push`
    longest = 0
    for s in range(n_slots):
        start[s] = edge[first_slot + s] * n_pairwise if pairwise.shape[1] > 1 else 0
        kind = group[edge[first_slot + s]] + n_groups * end[first_slot + s]
        zero[s] = (kind * 3 + 1) * n_pairwise
    for i in range(begin, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    row = np.empty(longest, np.int64)
    # Only differences of the two labels' scores matter.
    tilt, tilt_slope = np.empty(n_unary), np.zeros(n_unary)
    push, push_slope = np.empty(directed.size // 2), np.zeros(directed.size // 2)
    both = directed.reshape(-1)
    for d in range(n_unary):
        tilt[d] = weights[d, 1] - weights[d, 0]
    for entry in range(len(push)):
        push[entry] = both[2 * entry + 1] - both[2 * entry]
    bias, bias_slope = weights[n_unary, 1] - weights[n_unary, 0], 0.0
    value = 0.0
    for n in range(lo, hi):
        for i in range(begin, stop):
            true = labels[n, i]
            if true < 0:
                continue
            score, here = bias, (n * n_sites + i) * n_unary
            for d in range(n_unary):
                score += x[np.uint64(here + d)] * tilt[d]
            slots = indptr[i] - first_slot
            degree = indptr[i + 1] - indptr[i]
            for s in range(degree):
                slot = np.uint64(slots + s)
                label = near[np.uint64(n * n_sites + neighbour[np.uint64(first_slot + slots + s)])]
                e, r = np.uint64(n * images + start[slot]), np.uint64(zero[slot] + label * n_pairwise)
                row[s] = r
                for f in range(n_pairwise):
                    score += z[e + np.uint64(f)] * push[r + np.uint64(f)]
            sign = 1.0 - 2.0 * true
            wrong = sign * score  # the log odds of the label that is not true
            small = math.exp(-abs(wrong))
            weight = site_weights[n * weight_images, i * weight_sites]
            value += weight * (max(wrong, 0.0) + math.log1p(small))
            residual = weight * sign * (1.0 if wrong > 0 else small) / (1.0 + small)
            bias_slope += residual
            for d in range(n_unary):
                tilt_slope[d] += residual * x[np.uint64(here + d)]
            for s in range(degree):
                e, r = np.uint64(n * images + start[np.uint64(slots + s)]), np.uint64(row[s])
                for f in range(n_pairwise):
                    push_slope[r + np.uint64(f)] += residual * z[e + np.uint64(f)]
    slope[n_unary, 0] -= bias_slope
    slope[n_unary, 1] += bias_slope
    for d in range(n_unary):
        slope[d, 0] -= tilt_slope[d]
        slope[d, 1] += tilt_slope[d]
    both = pull.reshape(-1)
    for entry in range(len(push)):
        both[2 * entry] -= push_slope[entry]
        both[2 * entry + 1] += push_slope[entry]
    return value


@njit(nogil=True, cache=True, error_model="numpy")
def any_labels(observed, graph, weights, directed, slope, pull, window):
    """Any number of labels and samples."""
    unary, pairwise, labels, samples, site_weights = observed
    indptr, neighbour, edge, end, group = graph
    lo, hi, begin, stop = window
    n_groups = len(directed) // 2
    n_unary, n_pairwise, n_labels, n_samples = unary.shape[2], pairwise.shape[2], weights.shape[1], samples.shape[2]
    many_images, many_edges = int(len(pairwise) > 1), int(pairwise.shape[1] > 1)
    weight_images, weight_sites = int(len(site_weights) > 1), int(site_weights.shape[1] > 1)
    scores = np.empty((n_samples, n_labels))  # then probabilities, then residuals
    log_true = np.empty(n_samples)  # log p(true label | sample)
    alone = np.empty(n_labels)
    value = 0.0
    for n in range(lo, hi):
        for i in range(begin, stop):
            true = labels[n, i]
            if true < 0:
                continue
            for k in range(n_labels):
                alone[k] = weights[n_unary, k]
            for d in range(n_unary):
                feature = unary[n, i, d]
                for k in range(n_labels):
                    alone[k] += feature * weights[d, k]
            for m in range(n_samples):
                for k in range(n_labels):
                    scores[m, k] = alone[k]
                for slot in range(indptr[i], indptr[i + 1]):
                    c = group[edge[slot]] + n_groups * end[slot]
                    label = samples[n, neighbour[slot], m] + 1
                    for f in range(n_pairwise):
                        feature = pairwise[n * many_images, edge[slot] * many_edges, f]
                        for k in range(n_labels):
                            scores[m, k] += feature * directed[c, label, f, k]
                top = scores[m, 0]
                for k in range(1, n_labels):
                    top = max(top, scores[m, k])
                log_true[m] = scores[m, true] - top
                total = 0.0
                for k in range(n_labels):
                    scores[m, k] = math.exp(scores[m, k] - top)
                    total += scores[m, k]
                log_true[m] -= math.log(total)
                for k in range(n_labels):
                    scores[m, k] /= total
            top = log_true[0]
            for m in range(1, n_samples):
                top = max(top, log_true[m])
            total = 0.0
            for m in range(n_samples):
                log_true[m] = math.exp(log_true[m] - top)
                total += log_true[m]
            weight = site_weights[n * weight_images, i * weight_sites]
            value -= weight * (top + math.log(total / n_samples))
            for k in range(n_labels):
                alone[k] = 0.0
            for m in range(n_samples):
                share = weight * log_true[m] / total
                scores[m, true] -= 1.0
                for k in range(n_labels):
                    scores[m, k] *= share
                    alone[k] += scores[m, k]
                for slot in range(indptr[i], indptr[i + 1]):
                    c = group[edge[slot]] + n_groups * end[slot]
                    label = samples[n, neighbour[slot], m] + 1
                    for f in range(n_pairwise):
                        feature = pairwise[n * many_images, edge[slot] * many_edges, f]
                        for k in range(n_labels):
                            pull[c, label, f, k] += feature * scores[m, k]
            for k in range(n_labels):
                slope[n_unary, k] += alone[k]
            for d in range(n_unary):
                feature = unary[n, i, d]
                for k in range(n_labels):
                    slope[d, k] += feature * alone[k]
    return value
