"""Numba version of `reference.volume_conditionals`: ``exp(score)`` is a product with one factor per neighbour.

Grids with Potts weights use it as volumes of one plane.  Of few labels, eight samples are added at once; the others one
by one.
"""

import math

import numpy as np

from locpmap.kernels.model import unit_of
from locpmap.kernels.numba.compiling import inlined, inner, kernel
from locpmap.kernels.numba.vectors import doubles, ints, load_doubles, load_ints, rounded, select, store, total
from locpmap.kernels.numba.volume_rows import link_row, row_arrays, weigh_row, with_all_steps

_LANES, _FEW = 8, 8  # samples in a vector; labels that are worth it
_LARGEST = 600.0  # products of exponentials of weights with a larger sum may overflow: their logarithms are added


def volume_conditionals(unary, links, labels, sums, lo, begin, stop):
    """Add to ``sums`` (n, S, L), int64 or uint32, at sites begin..stop."""
    n_labels, n_slots = sums.shape[2], 2 * len(links.steps)
    scratch = (
        row_arrays(links, n_labels),
        np.empty(n_slots, labels.dtype),
        np.empty(n_labels * _LANES),
        np.empty(n_labels, np.int64),
    )
    add_images(unary, with_all_steps(links), labels, sums, unit_of(sums.dtype), lo, begin, stop, scratch)


@kernel
def add_images(unary, links, labels, sums, unit, lo, begin, stop, scratch):
    """Add the conditional probabilities row by row."""
    (neighbours, scores), around, terms, shares = scratch
    offset, weight, _, known = neighbours
    known[0] = -1
    powers, _, _, top = scores
    _, height, width = links.shape
    n_labels, n_samples = sums.shape[2], labels.shape[2]
    for n in range(len(labels)):
        flat = labels[n].reshape(labels[n].size)
        for r in range(begin // width, -(-stop // width)):
            count, bound = link_row(neighbours, links, lo + n, r // height, r % height, True)
            products = bound <= _LARGEST
            if not products:
                link_row(neighbours, links, lo + n, r // height, r % height, False)
            weigh_row(scores, unary[lo + n], r * width, width, 1.0)
            for x in range(max(0, begin - r * width), min(width, stop - r * width)):
                i = r * width + x
                steps, pulls, mine = offset[(x == 0) + 2 * (x == width - 1)], weight[x], sums[n, i]
                alone = 0
                if products and n_labels <= _FEW and top[x] > -np.inf:
                    alone = n_samples // _LANES * _LANES
                    for s in range(0, alone, _LANES):
                        add_lanes(mine, flat, i * n_samples + s, n_samples, steps, pulls, count, powers, x, terms, unit)
                for s in range(alone, n_samples):
                    at = i * n_samples + s
                    if top[x] == -np.inf:  # error fields removed the only label of a masked site: take the sample's
                        mine[flat[at]] += np.int64(unit)
                        continue
                    same = s > alone
                    for j in range(count):
                        label = flat[at + steps[j] * n_samples]
                        same &= label == around[j]
                        around[j] = label
                    if not same:
                        for k in range(n_labels):
                            terms[k] = powers[k, x] if products else unary[lo + n, i, k] - top[x]
                        share(shares, terms[:n_labels], around, pulls, count, products, unit)
                    for k in range(n_labels):
                        mine[k] += shares[k]


@inlined
def add_lanes(mine, flat, at, stride, steps, pulls, count, powers, x, terms, unit):
    """Add the conditional probabilities of a site in eight samples, as integers."""
    n_labels = len(mine)
    whole = doubles(0.0)
    for k in range(n_labels):
        term = doubles(powers[k, x])
        for j in range(count):
            term *= select(load_ints(flat, at + steps[j] * stride) == ints(k), doubles(pulls[j]), doubles(1.0))
        store(terms, _LANES * k, term)
        whole += term
    scale = doubles(unit) / whole
    for k in range(n_labels):
        mine[k] += np.int64(total(rounded(load_doubles(terms, _LANES * k) * scale)))


@inner
def share(shares, terms, around, pulls, count, products, unit):
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
    scale = unit / total
    for k in range(n_labels):
        shares[k] = np.int64(np.rint(terms[k] * scale))
