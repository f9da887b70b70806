"""Numba version of `reference.volume_conditionals`: ``exp(score)`` is a product with one factor per neighbour.

Grids with Potts weights use it as volumes of one plane.  Samples whose neighbours have equal labels share one
computation: at most sites, these are all samples.  Others with few labels are added eight at once.
"""

import math

import numpy as np

from locpmap.kernels.model import unit_of
from locpmap.kernels.numba.bits import count_bits, trailing_zeros
from locpmap.kernels.numba.compiling import inlined, inner, kernel
from locpmap.kernels.numba.vectors import (
    as_bits,
    as_flags,
    doubles,
    ints,
    load_doubles,
    load_ints,
    rounded,
    select,
    store,
    total,
)
from locpmap.kernels.numba.volume_rows import link_row, row_arrays, weigh_row, with_all_steps

_ONE, _BYTE, _ALL = np.uint64(1), np.uint64(255), np.uint64(0xFFFFFFFFFFFFFFFF)
_LANES, _FEW = 8, 8  # samples in a vector; labels that are worth it
_LARGEST = 600.0  # products of exponentials of weights with a larger sum may overflow: their logarithms are added


def volume_conditionals(unary, links, labels, sums, first, lo, begin, stop):
    """Add to ``sums`` (n, T, L), int64 or uint32, of the sites from ``first`` on, at sites begin..stop."""
    n_labels, n_slots, width = sums.shape[2], 2 * len(links.steps), links.shape[2]
    rows = row_arrays(links), np.empty((n_labels, width)), np.empty(width)
    own, terms = np.empty(n_labels), np.empty(n_labels * _LANES)
    scratch = own, terms, np.empty(n_labels, np.int64), np.empty(n_slots, labels.dtype)
    add_images(unary, with_all_steps(links), labels, sums, unit_of(sums.dtype), first, lo, begin, stop, rows, scratch)


@kernel
def add_images(unary, links, labels, sums, unit, first, lo, begin, stop, rows, scratch):
    """Add the conditional probabilities row by row."""
    neighbours, powers, top = rows
    offset, weight, _, known = neighbours
    known[0] = -1
    own = scratch[0]
    _, height, width = links.shape
    n_samples = labels.shape[2]
    for n in range(len(labels)):
        flat = labels[n].reshape(labels[n].size)
        for r in range(begin // width, -(-stop // width)):
            products = height > 0  # not a literal, for which `link_row` would be compiled twice
            count, bound = link_row(neighbours, links, lo + n, r // height, r % height, products)
            products = bound <= _LARGEST
            if not products:
                link_row(neighbours, links, lo + n, r // height, r % height, products)
            weigh_row(powers, top, unary[lo + n], r * width)
            for x in range(max(0, begin - r * width), min(width, stop - r * width)):
                i = r * width + x
                mine = sums[n, i - first]
                if top[x] == -np.inf:  # error fields removed the only label of a masked site: take the samples'
                    for s in range(n_samples):
                        mine[flat[i * n_samples + s]] += np.int64(unit)
                    continue
                for k in range(len(own)):
                    own[k] = powers[k, x] if products else unary[lo + n, i, k] - top[x]
                around = offset[(x == 0) + 2 * (x == width - 1)], weight[x], count, n_samples
                for s in range(0, n_samples, 64):
                    add_site(mine, flat, i * n_samples + s, min(64, n_samples - s), around, scratch, products, unit)


@inner
def add_site(mine, flat, at, n, neighbours, scratch, products, unit):
    """Add the conditional probabilities of a site in n <= 64 samples, as integers."""
    steps, pulls, count, stride = neighbours
    own, terms, shares, around = scratch
    todo = _ALL >> np.uint64(64 - n)
    few = products and len(mine) <= _FEW
    if few and n < 2 * _LANES:  # too few samples to look for equal ones
        todo = add_vectors(mine, flat, at, n, neighbours, own, terms, todo, unit)
    while todo:
        first = np.int64(trailing_zeros(todo))
        for j in range(count):
            around[j] = flat[at + first + steps[j] * stride]
        same = todo & alike(flat, at, n, stride, steps, around, count)
        todo &= ~same
        share(shares, own, terms, around, pulls, count, products, unit)
        for k in range(len(mine)):
            mine[k] += np.int64(count_bits(same)) * shares[k]
        if few:
            todo = add_vectors(mine, flat, at, n, neighbours, own, terms, todo, unit)


@inner
def add_vectors(mine, flat, at, n, neighbours, own, terms, todo, unit):
    """Add the samples ``todo`` (bits), eight at once; return those that do not fill a vector."""
    steps, pulls, count, stride = neighbours
    for s in range(0, n - _LANES + 1, _LANES):
        bits = np.uint8(todo >> np.uint64(s) & _BYTE)
        if bits:
            todo &= ~(np.uint64(bits) << np.uint64(s))
            add_lanes(mine, flat, at + s, stride, steps, pulls, count, own, terms, bits, unit)
    return todo


@inner
def alike(flat, at, n, stride, steps, around, count):
    """Return a mask of the samples, of n, whose neighbours have the labels ``around``."""
    mask = np.uint64(0)
    for s in range(0, n - _LANES + 1, _LANES):
        bits = np.uint8(255)
        for j in range(count):
            bits &= as_bits(load_ints(flat, at + s + steps[j] * stride) == ints(around[j]))
        mask |= np.uint64(bits) << np.uint64(s)
    for s in range(n // _LANES * _LANES, n):
        same = _ONE
        for j in range(count):
            same &= np.uint64(flat[at + s + steps[j] * stride] == around[j])
        mask |= same << np.uint64(s)
    return mask


@inlined
def add_lanes(mine, flat, at, stride, steps, pulls, count, own, terms, bits, unit):
    """Add the conditional probabilities of a site in those of eight samples whose bit is set, as integers."""
    n_labels = len(mine)
    whole = doubles(0.0)
    for k in range(n_labels):
        term = doubles(own[k])
        for j in range(count):
            term *= select(load_ints(flat, at + steps[j] * stride) == ints(k), doubles(pulls[j]), doubles(1.0))
        store(terms, _LANES * k, term)
        whole += term
    scale = doubles(unit) / whole
    for k in range(n_labels):
        share = select(as_flags(bits), rounded(load_doubles(terms, _LANES * k) * scale), doubles(0.0))
        mine[k] += np.int64(total(share))


@inner
def share(shares, own, terms, around, pulls, count, products, unit):
    """Fill the conditional probabilities of a site given its neighbours' labels, as integers."""
    n_labels = len(shares)
    for k in range(n_labels):
        terms[k] = own[k]
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
