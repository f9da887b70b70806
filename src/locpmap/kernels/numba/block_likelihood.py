"""Numba version of `reference.block_likelihood`: negative log conditionals of blocks and their derivatives.

For each block, gather the scores of its sites given all other labels and compute the probabilities of labels and pairs.
Then write residuals and add the derivatives (gradient) of the edges inside.  Cost per site of a forest: that of
`site_likelihood`, plus L² · F multiplications for the edge to the parent and L² exponentials.  Cost of an enumerated
block: its joint labellings times its sites and inner edges.
"""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.likelihood_inputs import length_type, read_only, rows_of_tables

NO_TABLES = (np.empty(0), (0, 0, 0))


def block_likelihood(scores, plan, labels, weights, losses, part):
    """Write losses and residuals of the blocks of a part, and add to the gradient."""
    n_labels, (lo, hi, begin, stop) = scores.unary.shape[2], part
    length = np.diff(plan.ptr[begin : stop + 1])
    most_sites, most_joint = int(length.max(initial=0)), int(length[plan.joint[begin:stop]].max(initial=0))
    most_inner = max(most_sites, most_joint * (most_joint - 1) // 2)
    scratch = (
        np.empty(labels.shape[1], np.int32),  # the position of a site within the current block
        np.empty(most_sites, np.int32),  # true labels
        np.empty((most_sites, n_labels)),  # scores, then probabilities, then residuals
        np.empty((most_inner * n_labels, n_labels)),  # the same for pairs: (edge, neighbour's label), this site's label
        np.empty((most_inner, 2), np.int32),  # positions of this site and the neighbour
        np.empty(most_inner, np.int64),  # the slot of the neighbour
        np.empty(n_labels**most_joint),  # scores of joint labellings
        np.empty(most_sites, np.int32),  # a labelling
    )
    given = read_only(scores.unary, scores.features, labels, weights.astype(np.float64, copy=False))
    graph = read_only(scores.indptr, scores.neighbour, scores.edge, scores.end, scores.group)
    blocks = read_only(plan.ptr, plan.site, plan.parent_slot, plan.joint, plan.block_of, plan.family)
    rows, strides = NO_TABLES if scores.potts else rows_of_tables(scores, lo, hi)
    # Rows have the precision of the scores, so that there is one compiled kernel per precision.
    rows = rows.astype(scores.unary.dtype, copy=False)
    n_features, binary = scores.features.shape[2], n_labels == 2
    lengths = length_type(n_features, known=binary and n_features in (1, 2)), length_type(n_labels, known=binary)
    out = losses._replace(gradient=losses.gradient.reshape(len(losses.gradient), -1))
    add_blocks(lengths, given, graph, blocks, scratch, scores.potts, rows, strides, out, part)


@kernel
def add_blocks(lengths, given, graph, blocks, scratch, potts, rows, strides, out, part):
    """Process the blocks of a part in order."""
    unary, features, labels, weights = given
    indptr, neighbour, edge, end, group = graph
    ptr, sites, parent_slot, joint, block_of, family_of = blocks
    place, true, local, inner, inner_ends, inner_slot, chance, labelling = scratch
    ends, images, first_image = strides
    value, residual, gradient = out
    lo, hi, begin, stop = part
    n_features, n_labels = len(lengths[0]), len(lengths[1])
    z = features.reshape(-1)
    z_images = features.shape[1] * n_features if len(features) > 1 else 0  # stride between images in z
    z_edges = n_features if features.shape[1] > 1 else 0  # stride between edges in z
    many_gradients = int(len(gradient) > 1)
    one = np.uint64(1)  # unsigned indices avoid the check for negative ones
    for n in range(lo, hi):
        weight = weights[n if len(weights) > 1 else 0]
        for b in range(begin, stop):
            first, length, family = ptr[b], ptr[b + 1] - ptr[b], family_of[b]
            n_inner = np.int64(0)  # with a literal 0, the callees would be compiled twice
            for j in range(length):
                i = np.uint64(sites[first + j])
                place[i] = j
                true[j] = labels[n, i]
                for k in range(n_labels):
                    local[j, k] = unary[n, i, k]
                    residual[n, i, 0, k] = 0.0
                if true[j] < 0:
                    continue
                for slot in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
                    other, at = np.uint64(neighbour[slot]), n * z_images + edge[slot] * z_edges
                    table = ends * end[slot] + images * (n - first_image)
                    table += group[edge[slot]] * n_features * n_labels * n_labels
                    label = labels[n, other]
                    if label < 0:
                        continue
                    if block_of[family, other] != b:
                        if potts:
                            local[j, label] += z[np.uint64(at)]
                        else:
                            for f in range(n_features):
                                feature, row = z[np.uint64(at + f)], table + (f * n_labels + label) * n_labels
                                for k in range(n_labels):
                                    local[j, k] += feature * rows[np.uint64(row + k)]
                    # The sites of a joint block are sorted.
                    elif np.int64(slot) == parent_slot[first + j] or (joint[b] and other < i):
                        inner_slot[n_inner], inner_ends[n_inner, 0], inner_ends[n_inner, 1] = slot, j, place[other]
                        for m in range(n_labels):
                            for k in range(n_labels):
                                inner[n_inner * n_labels + m, k] = 0.0
                            if potts:
                                inner[n_inner * n_labels + m, m] = z[np.uint64(at)]
                                continue
                            for f in range(n_features):
                                feature, row = z[np.uint64(at + f)], table + (f * n_labels + m) * n_labels
                                for k in range(n_labels):
                                    inner[n_inner * n_labels + m, k] += feature * rows[np.uint64(row + k)]
                        n_inner += 1
            if joint[b]:
                loss = enumerate_block(local, inner, inner_ends, n_inner, true, length, chance, labelling)
            else:
                loss = eliminate(lengths[1], local, inner, inner_ends, n_inner, true, length)
            value[n, b] = weight * loss
            for c in range(n_inner):
                up = np.uint64(inner_slot[c])
                e = edge[up]
                inner[c * n_labels + true[inner_ends[c, 1]], true[inner_ends[c, 0]]] -= 1.0
                if potts:
                    total = 0.0
                    for k in range(n_labels):
                        total += inner[c * n_labels + k, k]
                    gradient[n, e] += weight * total
                    continue
                here, there = (n_labels, 1) if end[up] == 0 else (1, n_labels)  # strides of labels in a table
                for f in range(n_features):
                    feature = weight * z[np.uint64(n * z_images + e * z_edges + f)]
                    at = (group[e] * n_features + f) * n_labels * n_labels
                    for m in range(n_labels):
                        for k in range(n_labels):
                            place_of_pair = np.uint64(at + here * k + there * m)
                            gradient[n * many_gradients, place_of_pair] += feature * inner[c * n_labels + m, k]
            for j in range(length):
                if true[j] >= 0:
                    local[j, true[j]] -= 1.0
                    for k in range(n_labels):
                        residual[n, sites[first + j], 0, k] = weight * local[j, k]


@inner
def eliminate(axis, local, inner, ends, n_inner, true, length):
    """Replace a forest's scores by probabilities; return ``-log p(true)``.

    The upward pass turns scores of pairs into ``p(site | parent)`` and adds their log-sums to the parent.  The downward
    pass turns them into ``p(site, parent)``.
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


@inner
def normalise(axis, rows, r):
    """Replace row r of scores by probabilities; return the log-sum-exp of the scores."""
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


@inner
def enumerate_block(local, inner, ends, n_inner, true, length, chance, labelling):
    """Replace a block's scores by probabilities by enumeration; return ``-log p(true)``."""
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


@inner
def count_up(labelling, true, length, n_labels):
    """Advance to the next labelling of the non-void sites; the last site changes fastest.  Wrap around at the end."""
    for j in range(length - 1, -1, -1):
        if true[j] < 0:
            continue
        labelling[j] += 1
        if labelling[j] < n_labels:
            return
        labelling[j] = 0
