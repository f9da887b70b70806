"""Rows of a volume: neighbours and weights of their sites, first labels and random starts (see `climb_volume`)."""

import math

import numpy as np

from locpmap.kernels.numba.compiling import inner
from locpmap.kernels.numba.field_rows import exp
from locpmap.kernels.numba.noise import logistic_word, pick, site_words, uniform
from locpmap.kernels.reference.noise import LAZY_SITE, START, START_BITS

LANES = 8  # samples that climb together: one bit each in a byte of marks


def row_arrays(links):
    """Allocate the arrays of `link_row`: offsets of neighbours by case of the column, and weights by column."""
    n_slots = 2 * len(links.steps)
    return np.zeros((4, n_slots), np.int64), np.empty((n_slots, links.shape[2]))


@inner
def link_row(rows, links, n, z, y, powers):
    """Fill the neighbours of the sites in row (z, y) of image n; return their number and a bound of the weights' sum.

    ``offset[case]`` leads from a site to its neighbours: case 0 inside the row, bit 0 in its first column, bit 1 in its
    last one.  A missing neighbour has offset 0 and weight 0.  ``powers`` replaces the weights by their exponentials.
    """
    offset, weight = rows
    depth, height, width = links.shape
    count, bound = 0, 0.0
    for d in range(len(links.steps)):
        dz, dy, dx = links.steps[d]
        mine = links.weights[d][n if len(links.weights[d]) > 1 else 0]
        for sign in (1, -1):
            sz, sy, sx = sign * dz, sign * dy, sign * dx
            if not (0 <= z + sz < depth and 0 <= y + sy < height and abs(sx) < width):
                continue
            begin, stop = max(0, -sx), width - max(0, sx)
            values = weight[count]
            values[:] = 1.0 if powers else 0.0
            if len(mine) == 1:
                value = np.float64(mine[0])
                bound += abs(value)
                values[begin:stop] = math.exp(value) if powers else value
            else:
                above, back = (0, 0) if sign > 0 else (sz, sy)  # from the site to the first end of the edge
                row = (z + above - max(0, -dz)) * (height - abs(dy)) + y + back - max(0, -dy)
                at, most = row * (width - abs(dx)), 0.0
                for x in range(begin, stop):
                    value = np.float64(mine[at + x - begin])
                    most = max(most, abs(value))
                    values[x] = value
                bound += most
                if powers:
                    for x in range(begin, stop):
                        values[x] = math.exp(values[x])
            step = (sz * height + sy) * width + sx
            offset[0, count] = step
            offset[1, count] = step if begin == 0 else 0
            offset[2, count] = step if stop == width else 0
            offset[3, count] = step if begin == 0 and stop == width else 0
            count += 1
    return count, bound


@inner
def describe_row(sites, unary, weights, noise, temperature, begin, slot0, site0, width, lanes):
    """Draw the first labels of a row and the leading bytes of their clocks; for two labels, the thresholds.

    The label of two is 1 where its neighbours' support minus that of label 0 exceeds the threshold.
    """
    first, tick, best, log_total, threshold = sites
    k0, k1, image, sample0 = noise
    n_labels, inverse = unary.shape[1], 1 / temperature
    for x in range(width):
        i, slot = begin + x, slot0 + x
        if n_labels == 2:
            ahead = np.float64(unary[i, 1]) - np.float64(unary[i, 0])
            for lane in range(lanes):
                u = (np.float64(logistic_word(k0, k1, image, sample0 + lane, site0 + x)) + 0.5) * 2.0**-32
                threshold[slot, lane] = temperature * math.log(u / (1 - u)) - ahead
                first[slot, lane] = threshold[slot, lane] < 0
            continue
        b, top = 0, unary[i, 0]
        for k in range(1, n_labels):
            if unary[i, k] > top:
                b, top = k, unary[i, k]
        all_of_them = 0.0
        for k in range(n_labels):
            weights[k] = exp((np.float64(unary[i, k]) - np.float64(top)) * inverse)
            all_of_them += weights[k]
        best[slot], log_total[slot] = b, math.log(all_of_them)
        words = site_words(k0, k1, LAZY_SITE, image, sample0 >> 2, site0 + x, 0)
        for lane in range(lanes):
            sample = sample0 + lane
            if lane > 0 and sample & 3 == 0:
                words = site_words(k0, k1, LAZY_SITE, image, sample >> 2, site0 + x, 0)
            word = pick(words, sample & 3)
            tick[slot, lane] = word & np.uint32(255)
            u, label = uniform(word) * all_of_them, b
            if u > 1.0:
                cumulative = 1.0
                for k in range(n_labels):
                    if k != b and u > cumulative and weights[k] > 1e-300:
                        cumulative += weights[k]
                        label = k
            first[slot, lane] = label


@inner
def random_row(y, unary, noise, begin, site0, width, lane0, lanes, skipped):
    """Fill random start labels of a row, except at columns of parity ``skipped`` (2: none)."""
    k0, k1, image, sample0 = noise
    n_labels = unary.shape[1]
    for x in range(width):
        i = begin + x
        if x & 1 == skipped:
            y[i, lane0 : lane0 + lanes] = 0
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
