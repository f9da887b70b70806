"""Rows of a volume: neighbours and weights of their sites, first labels and random starts (see `climb_volume`)."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner
from locpmap.kernels.numba.field_rows import exp
from locpmap.kernels.numba.noise import pick, site_words, uniform
from locpmap.kernels.reference.noise import LAZY_SITE, LOGISTIC, LOGISTIC_FINE, START, START_BITS

LANES = 8  # samples that climb together: one bit each in a byte of marks
GROUP = 4  # samples in a vector
FEW = 8  # labels whose support is summed in vectors
MOST_STEPS = 13


def with_all_steps(links):
    """Repeat the first step up to 13 steps, so that one compiled kernel serves all volumes; `link_row` skips these."""
    more = MOST_STEPS - len(links.steps)
    return links._replace(steps=links.steps + links.steps[:1] * more, weights=links.weights + links.weights[:1] * more)


def row_arrays(links, n_labels):
    """Allocate the arrays of `link_row` and `weigh_row`."""
    n_slots, width = 2 * len(links.steps), links.shape[2]
    known = np.full(2, -1, np.int64)
    neighbours = np.zeros((4, n_slots), np.int64), np.empty((width, n_slots)), np.empty(width), known
    scores = np.empty((n_labels, width)), np.empty(width), np.empty(width, np.int64), np.empty(width)
    return neighbours, scores, np.empty((4, width), np.uint32)


@inner
def link_row(neighbours, links, n, z, y, stride, powers):
    """Fill the neighbours of the sites in row (z, y) of image n; return their number and a bound of the weights' sum.

    ``offset[case]`` leads from a site to its neighbours, in units of ``1 / stride``: case 0 inside the row, bit 0 in
    its first column, bit 1 in its last one.  A missing neighbour has offset 0 and weight 0.  ``whole`` is the sum of a
    site's weights.  ``powers`` replaces the weights by their exponentials.  A row with the neighbours and weights of
    the row before is not filled again.
    """
    offset, weight, whole, known = neighbours
    depth, height, width = links.shape
    n_steps = offset.shape[1] // 2
    key = ((z == 0) + 2 * (z == depth - 1) + 4 * (y == 0) + 8 * (y == height - 1)) * 2 + powers
    for d in range(n_steps):
        key = -1 if links.weights[d].size > 1 else key
    if key >= 0 and known[0] == key:
        return known[1], whole[0]
    count, bound = 0, 0.0
    whole[:] = 0.0
    for d in range(n_steps):
        dz, dy, dx = links.steps[d]
        mine = links.weights[d][n if len(links.weights[d]) > 1 else 0]
        for sign in (1, -1):
            sz, sy, sx = sign * dz, sign * dy, sign * dx
            if not (0 <= z + sz < depth and 0 <= y + sy < height and abs(sx) < width):
                continue
            begin, stop = max(0, -sx), width - max(0, sx)
            above, back = (0, 0) if sign > 0 else (sz, sy)  # from the site to the first end of the edge
            row = (z + above - max(0, -dz)) * (height - abs(dy)) + y + back - max(0, -dy)
            at, along = (0, 0) if len(mine) == 1 else (row * (width - abs(dx)), 1)
            most = 0.0
            for x in range(width):
                value = np.float64(mine[at + (x - begin) * along]) if begin <= x < stop else 0.0
                most = max(most, abs(value))
                whole[x] += value
                weight[x, count] = value
            if powers and along == 0:
                value = math.exp(most if mine[at] > 0 else -most)
                for x in range(width):
                    weight[x, count] = value if begin <= x < stop else 1.0
            elif powers:
                for x in range(width):
                    weight[x, count] = math.exp(weight[x, count])
            bound += most
            step = ((sz * height + sy) * width + sx) * stride
            offset[0, count] = step
            offset[1, count] = step if begin == 0 else 0
            offset[2, count] = step if stop == width else 0
            offset[3, count] = step if begin == 0 and stop == width else 0
            count += 1
    known[0], known[1] = key, count
    if powers:
        whole[:] = bound
    return count, bound


@inner
def add_support(support, flat, at, steps, pulls, count):
    """Fill ``support`` (L, 4) with the weights of the neighbours with each label, in four lanes, vectorised."""
    support[:] = 0
    for j in range(count):
        near, pull = at + steps[j], support.dtype.type(pulls[j])
        for k in range(len(support)):
            for lane in range(GROUP):
                support[k, lane] += pull if flat[near + lane] == k else support.dtype.type(0)


@inner
def weigh_row(scores, unary, begin, width, inverse):
    """Fill ``exp((score - top) · inverse)`` of every label in a row, (L, W), their sums, the best labels and tops."""
    weights, total, best, top = scores
    for x in range(width):
        best[x], top[x], total[x] = 0, unary[begin + x, 0], 0.0
    for k in range(1, len(weights)):
        for x in range(width):
            value = np.float64(unary[begin + x, k])
            best[x] = k if value > top[x] else best[x]
            top[x] = max(value, top[x])
    for k in range(len(weights)):
        mine = weights[k]
        for x in range(width):
            mine[x] = (np.float64(unary[begin + x, k]) - top[x]) * inverse
        for x in range(width):
            value = exp(mine[x])
            mine[x] = value
            total[x] += value


@inner
def describe_row(sites, unary, scores, words, noise, temperature, begin, slot0, site0, width, lanes):
    """Draw the first labels of a row and the leading bytes of their clocks; for two labels, the thresholds.

    The label of two is 1 where its neighbours' support minus that of label 0 exceeds the threshold.
    """
    first, tick, best, total, threshold = sites
    k0, k1, image, sample0 = noise
    if unary.shape[1] == 2:
        for x in range(width):
            ahead = np.float64(unary[begin + x, 1]) - np.float64(unary[begin + x, 0])
            for lane in range(lanes):
                sample = sample0 + lane
                if lane == 0 or sample & 7 == 0:
                    coarse = site_words(k0, k1, LOGISTIC, image, sample >> 3, site0 + x, 0)
                    fine = site_words(k0, k1, LOGISTIC_FINE, image, sample >> 3, site0 + x, 0)
                j, shift = sample >> 1 & 3, np.uint32(16 * (sample & 1))
                high = pick(coarse, j) >> shift & np.uint32(0xFFFF)
                low = pick(fine, j) >> shift & np.uint32(0xFFFF)
                u = (np.float64(np.uint64(high) << np.uint64(16) | np.uint64(low)) + 0.5) * 2.0**-32
                limit = temperature * math.log(u / (1 - u)) - ahead
                threshold[slot0 + x, lane] = limit
                first[slot0 + x, lane] = limit < 0
        return
    weigh_row(scores, unary, begin, width, 1 / temperature)
    weights, sums, tops = scores[0], scores[1], scores[2]
    for x in range(width):
        best[slot0 + x], total[slot0 + x] = tops[x], sums[x]
    for lane in range(lanes):
        sample = sample0 + lane
        if lane == 0 or sample & 3 == 0:
            for x in range(width):
                four = site_words(k0, k1, LAZY_SITE, image, sample >> 2, site0 + x, 0)
                words[0, x], words[1, x], words[2, x], words[3, x] = four
        mine = words[sample & 3]
        for x in range(width):
            tick[slot0 + x, lane] = mine[x] & np.uint32(255)
            u, label = uniform(mine[x]) * sums[x], tops[x]
            if u > 1.0:
                cumulative = 1.0
                for k in range(len(weights)):
                    if k != tops[x] and u > cumulative and weights[k, x] > 1e-300:
                        cumulative += weights[k, x]
                        label = k
            first[slot0 + x, lane] = label


@inner
def random_row(y, unary, noise, begin, site0, width, lane0, lanes, skipped):
    """Fill random start labels of a row, except at columns of parity ``skipped`` (2: none)."""
    k0, k1, image, sample0 = noise
    n_labels = unary.shape[1]
    for x in range(width):
        i = begin + x
        if x & 1 == skipped:
            for lane in range(lanes):
                y[i, lane0 + lane] = 0
            continue
        allowed = 0
        for k in range(n_labels):
            allowed += unary[i, k] > -np.inf
        words = site_words(
            k0, k1, START_BITS if n_labels == 2 else START, image, sample0 >> (7 if n_labels == 2 else 2), site0 + x, 0
        )
        for lane in range(lanes):
            sample = sample0 + lane
            if n_labels == 2:
                if lane > 0 and sample & 127 == 0:
                    words = site_words(k0, k1, START_BITS, image, sample >> 7, site0 + x, 0)
                nth = (
                    np.int64(pick(words, (sample >> 5) & 3) >> np.uint32(sample & 31) & np.uint32(1))
                    if allowed == 2
                    else 0
                )
            else:
                if lane > 0 and sample & 3 == 0:
                    words = site_words(k0, k1, START, image, sample >> 2, site0 + x, 0)
                nth = np.int64((np.uint64(pick(words, sample & 3)) * np.uint64(allowed)) >> np.uint64(32))
            if allowed < n_labels:
                label = -1 if allowed else 0  # a masked site has no label where its only one does not occur
                while allowed and nth >= 0:
                    label += 1
                    nth -= unary[i, label] > -np.inf
                nth = label
            y[i, lane0 + lane] = nth
