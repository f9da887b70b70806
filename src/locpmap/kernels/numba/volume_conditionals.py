"""Numba version of `reference.volume_conditionals`: ``exp(score)`` is a product with one factor per neighbour.

Grids with Potts weights use it as volumes of one plane.
"""

import math

import numpy as np

from locpmap.kernels.model import UNIT
from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.volume_rows import link_row, row_arrays, weigh_row, with_all_steps

_LARGEST = 600.0  # products of exponentials of weights with a larger sum may overflow: their logarithms are added


def volume_conditionals(unary, links, labels, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, L) int64 at sites begin..stop; equal neighbourhoods share one computation."""
    n_labels, n_slots = sums.shape[2], 2 * len(links.steps)
    scratch = (
        row_arrays(links, n_labels),
        np.empty(n_slots, labels.dtype),
        np.empty(n_labels),
        np.empty(n_labels, np.int64),
    )
    add_images(unary, with_all_steps(links), labels, sums, lo, begin, stop, scratch)


@kernel
def add_images(unary, links, labels, sums, lo, begin, stop, scratch):
    """Add the conditional probabilities row by row."""
    (neighbours, scores, _), around, terms, shares = scratch
    offset, weight, _, known = neighbours
    known[0] = -1
    powers, _, _, top = scores
    _, height, width = links.shape
    n_labels, n_samples = sums.shape[2], labels.shape[2]
    for n in range(len(labels)):
        flat = labels[n].reshape(labels[n].size)
        for r in range(begin // width, -(-stop // width)):
            count, bound = link_row(neighbours, links, lo + n, r // height, r % height, n_samples, True)
            products = bound <= _LARGEST
            if not products:
                link_row(neighbours, links, lo + n, r // height, r % height, n_samples, False)
            weigh_row(scores, unary[lo + n], r * width, width, 1.0)
            for x in range(max(0, begin - r * width), min(width, stop - r * width)):
                i = r * width + x
                steps, pulls, mine = offset[(x == 0) + 2 * (x == width - 1)], weight[x], sums[n, i]
                for s in range(n_samples):
                    at = i * n_samples + s
                    if top[x] == -np.inf:  # error fields removed the only label of a masked site: take the sample's
                        mine[flat[at]] += np.int64(UNIT)
                        continue
                    same = s > 0
                    for j in range(count):
                        label = flat[at + steps[j]]
                        same &= label == around[j]
                        around[j] = label
                    if not same:
                        for k in range(n_labels):
                            terms[k] = powers[k, x] if products else unary[lo + n, i, k] - top[x]
                        share(shares, terms, around, pulls, count, products)
                    for k in range(n_labels):
                        mine[k] += shares[k]


@inner
def share(shares, terms, around, pulls, count, products):
    """Fill the conditional probabilities of a site given its neighbours' labels, as integers."""
    n_labels = len(shares)
    for j in range(count):
        if products:
            terms[around[j]] *= pulls[j]
        else:
            terms[around[j]] += pulls[j]
    if not products:
        top = terms[0]
        for k in range(1, n_labels):
            top = max(top, terms[k])
        for k in range(n_labels):
            terms[k] = math.exp(terms[k] - top)
    total = 0.0
    for k in range(n_labels):
        total += terms[k]
    scale = UNIT / total
    for k in range(n_labels):
        shares[k] = np.int64(np.rint(terms[k] * scale))
