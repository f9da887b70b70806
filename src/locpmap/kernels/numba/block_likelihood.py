"""Negative log conditionals of blocks and their slopes, compiled; see the reference for the definition.

A block at a time: gather its sites' scores given the labels around, solve it (probabilities of labels and of pairs of
labels), scatter residuals into the slopes.  Cost per site of a forest: what :mod:`site_likelihood` does, L² · F for the
edge to the parent and L² exponentials; of an enumerated block: its joint labellings times its sites and inner edges.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.directed_tables import direct, fold
from locpmap.kernels.numba.known_lengths import axes


def block_likelihood(
    data, plan, labels, image_weights, weights, tables, value, slope, table_slope, lo, hi, begin, stop
):
    """Add to ``value``, ``slope`` and ``table_slope`` for images lo..hi and blocks begin..stop."""
    n_labels = weights.shape[1]
    directed = direct(tables)
    pull = np.zeros_like(directed)
    length = np.diff(plan.ptr[begin : stop + 1])
    most_sites, most_joint = int(length.max(initial=0)), int(length[plan.joint[begin:stop]].max(initial=0))
    most_inner = max(most_sites, most_joint * (most_joint - 1) // 2)
    scratch = (
        np.empty(labels.shape[1], np.int32),  # the position of a site within the block at hand
        np.empty(most_sites, np.int32),  # true labels
        np.empty((most_sites, n_labels)),  # scores, then probabilities, then residuals
        np.empty((most_inner * n_labels, n_labels)),  # the same of pairs: (edge, neighbour's label), this site's label
        np.empty((most_inner, 2), np.int32),  # this site and the neighbour, by position
        np.empty(most_inner, np.int64),  # the slot of the neighbour
        np.empty(n_labels**most_joint),  # scores of joint labellings
        np.empty(most_sites, np.int32),  # a labelling
    )
    observed = (data.unary, data.pairwise, labels, image_weights)
    graph = (data.indptr, data.neighbour, data.edge, data.end, data.group)
    blocks = (plan.ptr, plan.site, plan.parent_slot, plan.joint, plan.block_of)
    sizes = axes(data.unary.shape[2], data.pairwise.shape[2], n_labels)
    window = (lo, hi, begin, stop)
    value += add_blocks(sizes, observed, graph, blocks, scratch, weights, directed, slope, pull, window)
    fold(pull, table_slope)


@njit(nogil=True, cache=True, error_model="numpy")
def add_blocks(sizes, observed, graph, blocks, scratch, weights, directed, slope, pull, window):
    """Add to ``slope`` and ``pull`` (the slope of directed tables); returns the sum of the losses."""
    unary, pairwise, labels, image_weights = observed
    indptr, neighbour, edge, end, group = graph
    ptr, sites, parent_slot, joint, block_of = blocks
    place, true, local, inner, inner_ends, inner_slot, chance, labelling = scratch
    lo, hi, begin, stop = window
    n_groups = len(directed) // 2
    n_unary, n_pairwise, n_labels = len(sizes[0]), len(sizes[1]), len(sizes[2])
    z = pairwise.reshape(-1)
    images = pairwise.shape[1] * n_pairwise if len(pairwise) > 1 else 0  # from an image's features to the next one's
    edges = n_pairwise if pairwise.shape[1] > 1 else 0  # from an edge's features to the next one's
    one, value = np.uint64(1), 0.0  # unsigned indices spare the test for negative ones
    for n in range(lo, hi):
        weight = image_weights[n if len(image_weights) > 1 else 0]
        for b in range(begin, stop):
            first, length, family = ptr[b], ptr[b + 1] - ptr[b], 0
            while block_of[family, sites[first]] != b:
                family += 1
            n_inner = np.int64(0)  # a literal 0 would have what it is handed to compiled twice
            for j in range(length):
                i = np.uint64(sites[first + j])
                place[i] = j
                true[j] = labels[n, i]
                if true[j] < 0:
                    continue
                for k in range(n_labels):
                    local[j, k] = weights[n_unary, k]
                for d in range(n_unary):
                    for k in range(n_labels):
                        local[j, k] += unary[n, i, d] * weights[d, k]
                for slot in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
                    other, features = np.uint64(neighbour[slot]), n * images + edge[slot] * edges
                    c = np.uint64(group[edge[slot]] + n_groups * end[slot])
                    label = labels[n, other]
                    if block_of[family, other] != b or label < 0:
                        for f in range(n_pairwise):
                            feature = z[np.uint64(features + f)]
                            for k in range(n_labels):
                                local[j, k] += feature * directed[c, np.uint64(label + 1), f, k]
                    elif np.int64(slot) == parent_slot[first + j] or (
                        joint[b] and other < i
                    ):  # a joint block's sites are in order
                        inner_slot[n_inner], inner_ends[n_inner, 0], inner_ends[n_inner, 1] = slot, j, place[other]
                        for m in range(n_labels):
                            for k in range(n_labels):
                                inner[n_inner * n_labels + m, k] = 0.0
                            for f in range(n_pairwise):
                                feature = z[np.uint64(features + f)]
                                for k in range(n_labels):
                                    inner[n_inner * n_labels + m, k] += feature * directed[c, m + 1, f, k]
                        n_inner += 1
            if joint[b]:
                loss = enumerate_block(local, inner, inner_ends, n_inner, true, length, chance, labelling)
            else:
                loss = eliminate(sizes[2], local, inner, inner_ends, n_inner, true, length)
            value += weight * loss
            for e in range(n_inner):
                at = np.uint64(inner_slot[e])
                c, features = np.uint64(group[edge[at]] + n_groups * end[at]), n * images + edge[at] * edges
                inner[e * n_labels + true[inner_ends[e, 1]], true[inner_ends[e, 0]]] -= 1.0
                for f in range(n_pairwise):
                    feature = weight * z[np.uint64(features + f)]
                    for m in range(n_labels):
                        for k in range(n_labels):
                            pull[c, m + 1, f, k] += feature * inner[e * n_labels + m, k]
            for j in range(length):
                if true[j] < 0:
                    continue
                i = np.uint64(sites[first + j])
                local[j, true[j]] -= 1.0
                for k in range(n_labels):
                    local[j, k] *= weight
                    slope[n_unary, k] += local[j, k]
                for d in range(n_unary):
                    for k in range(n_labels):
                        slope[d, k] += unary[n, i, d] * local[j, k]
                for slot in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
                    other, features = np.uint64(neighbour[slot]), n * images + edge[slot] * edges
                    c = np.uint64(group[edge[slot]] + n_groups * end[slot])
                    label = labels[n, other]
                    if block_of[family, other] != b or label < 0:
                        for f in range(n_pairwise):
                            feature = z[np.uint64(features + f)]
                            for k in range(n_labels):
                                pull[c, np.uint64(label + 1), f, k] += feature * local[j, k]
    return value


@njit(error_model="numpy")
def eliminate(axis, local, inner, ends, n_inner, true, length):
    """Replace a forest's scores by probabilities; returns ``-log p(true)``.

    Upwards, scores of pairs become ``p(site | parent)`` and their sums go to the parent; downwards, they become
    ``p(site, parent)``.
    """
    n_labels = len(axis)
    loss, e = 0.0, n_inner
    for j in range(length - 1, -1, -1):
        if true[j] < 0:
            continue
        if e == 0 or ends[e - 1, 0] != j:  # a root
            score = local[j, true[j]]
            loss += normalise(axis, local, j) - score
            continue
        e -= 1
        up = ends[e, 1]
        for m in range(n_labels):
            row = e * n_labels + m
            for k in range(n_labels):
                inner[row, k] += local[j, k]
            score = inner[row, true[j]]
            log_sum = normalise(axis, inner, row)
            local[up, m] += log_sum
            if m == true[up]:
                loss += log_sum - score
    for e in range(n_inner):
        j, up = ends[e, 0], ends[e, 1]
        for k in range(n_labels):
            local[j, k] = 0.0
        for m in range(n_labels):
            row = e * n_labels + m
            for k in range(n_labels):
                inner[row, k] *= local[up, m]
                local[j, k] += inner[row, k]
    return loss


@njit(error_model="numpy")
def normalise(axis, rows, r):
    """Replace row r of scores by probabilities; returns the log of the sum of their exponentials."""
    n_labels = len(axis)
    if n_labels == 2:  # one exponential instead of two
        top, small = max(rows[r, 0], rows[r, 1]), math.exp(-abs(rows[r, 1] - rows[r, 0]))
        larger = 1.0 / (1.0 + small)
        smaller = small * larger
        first = rows[r, 0] >= rows[r, 1]
        rows[r, 0] = larger if first else smaller
        rows[r, 1] = smaller if first else larger
        return top + math.log1p(small)
    top = rows[r, 0]
    for k in range(1, n_labels):
        top = max(top, rows[r, k])
    total = 0.0
    for k in range(n_labels):
        rows[r, k] = math.exp(rows[r, k] - top)
        total += rows[r, k]
    for k in range(n_labels):
        rows[r, k] /= total
    return top + math.log(total)


@njit(error_model="numpy")
def enumerate_block(local, inner, ends, n_inner, true, length, chance, labelling):
    """Replace a block's scores by probabilities; returns ``-log p(true)``."""
    n_labels = local.shape[1]
    n_states, true_state = 1, 0
    for j in range(length):
        labelling[j] = 0
        if true[j] >= 0:
            n_states, true_state = n_states * n_labels, true_state * n_labels + true[j]
    top = -np.inf
    for state in range(n_states):
        total = 0.0
        for j in range(length):
            if true[j] >= 0:
                total += local[j, labelling[j]]
        for e in range(n_inner):
            total += inner[e * n_labels + labelling[ends[e, 1]], labelling[ends[e, 0]]]
        chance[state] = total
        top = max(top, total)
        count_up(labelling, true, length, n_labels)
    score, total = chance[true_state] - top, 0.0
    for state in range(n_states):
        chance[state] = math.exp(chance[state] - top)
        total += chance[state]
    local[:length] = 0.0
    inner[: n_inner * n_labels] = 0.0
    for state in range(n_states):
        probability = chance[state] / total
        for j in range(length):
            if true[j] >= 0:
                local[j, labelling[j]] += probability
        for e in range(n_inner):
            inner[e * n_labels + labelling[ends[e, 1]], labelling[ends[e, 0]]] += probability
        count_up(labelling, true, length, n_labels)
    return math.log(total) - score


@njit(error_model="numpy")
def count_up(labelling, true, length, n_labels):
    """The next labelling of the sites that are not void, last site fastest; after the last one, the first again."""
    for j in range(length - 1, -1, -1):
        if true[j] < 0:
            continue
        labelling[j] += 1
        if labelling[j] < n_labels:
            return
        labelling[j] = 0
