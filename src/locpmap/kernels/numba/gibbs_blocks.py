"""Numba version of `reference.gibbs_blocks`.

A block costs ``L^width`` per site, a few additions and multiplications for each entry of a table.  If entries
of a table could underflow, tables hold logarithms, at about twenty times the cost.
"""

import math

import numpy as np

from locpmap.kernels.model import CONDITIONAL, VOTES
from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.noise import first_above, site_words, uniform
from locpmap.kernels.reference.noise import CHAIN

SMALL = 1e-10  # a table is scaled if its largest entry is smaller


@kernel
def gibbs_blocks(model, plan, labels, totals, adds, temperature, linear, k0, k1, sweep, first_image, lo, hi):
    """Update the labels (N, S) of images lo..hi, once at every site, by the blocks of the sweep's family."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends, site_id = model.indptr, model.neighbour, model.edge, model.end, model.site_id
    family = sweep % (len(plan.family_ptr) - 1)
    ptr, sites, removed, block_of = plan.ptr, plan.site, plan.removed, plan.block_of[family]
    n_labels, coldness = unary.shape[2], 1 / temperature
    first_block, last_block = plan.family_ptr[family], plan.family_ptr[family + 1]
    most = 0
    for b in range(first_block, last_block):
        most = max(most, ptr[b + 1] - ptr[b])
    entry = np.empty(plan.entries)  # all tables of a block; the first site of the frontier changes fastest
    starts = np.empty(most, np.int64)  # first entry of the table before each operation
    frontier = np.empty(plan.width, np.int32)
    terms, pair = np.empty(n_labels), np.empty(n_labels * n_labels)
    for n in range(lo, hi):
        for b in range(first_block, last_block):
            first, n_operations = ptr[b], ptr[b + 1] - ptr[b]
            at, size, length = 0, 1, 0
            entry[0] = 1.0 if linear else 0.0
            for t in range(n_operations):
                i, position = sites[first + t], removed[first + t]
                starts[t] = at
                after = at + size
                if position >= 0:
                    size //= n_labels
                    sum_out(entry[at:after], entry[after : after + size], n_labels, position, linear)
                    length -= 1
                    for p in range(position, length):
                        frontier[p] = frontier[p + 1]
                    at = after
                    continue
                for k in range(n_labels):
                    terms[k] = unary[n, i, k]
                for slot in range(indptr[i], indptr[i + 1]):
                    other = neighbour[slot]
                    if block_of[other] == b:
                        continue
                    if potts:
                        terms[labels[n, other]] += potts_weight(features, n, edges[slot])
                        continue
                    for k in range(n_labels):
                        terms[k] += table_score(features, tables, n, edges[slot], ends[slot], k, labels[n, other])
                factors(terms, coldness, linear)
                size *= n_labels
                add_site(entry[at:after], entry[after : after + size], terms, linear)
                for slot in range(indptr[i], indptr[i + 1]):
                    for p in range(length):
                        if frontier[p] != neighbour[slot]:
                            continue
                        for k in range(n_labels):
                            for m in range(n_labels):
                                pair[k * n_labels + m] = table_score(features, tables, n, edges[slot], ends[slot], k, m)
                        factors(pair, coldness, linear)
                        multiply(entry[after : after + size], pair, n_labels, p, linear)
                frontier[length] = i
                length += 1
                at = after
            possible = entry[at] > (0.0 if linear else -np.inf)
            for t in range(n_operations - 1, -1, -1):
                i, position = sites[first + t], removed[first + t]
                if position < 0:  # undo the addition
                    length -= 1
                    continue
                for p in range(length, position, -1):
                    frontier[p] = frontier[p - 1]
                frontier[position] = i
                length += 1
                at, stride = starts[t], n_labels**position
                for p in range(length - 1, -1, -1):
                    if p != position:
                        at += labels[n, frontier[p]] * n_labels**p
                drawn = labels[n, i]
                if possible:
                    top = entry[at]
                    for k in range(n_labels):
                        terms[k] = entry[at + k * stride]
                        top = max(top, terms[k])
                    total = 0.0
                    for k in range(n_labels):
                        terms[k] = terms[k] if linear else math.exp(terms[k] - top)
                        total += terms[k]
                    threshold = uniform(site_words(k0, k1, CHAIN, first_image + n, sweep, site_id[i], 0)[0]) * total
                    drawn = first_above(terms, threshold)
                    labels[n, i] = drawn
                    if adds == CONDITIONAL:
                        for k in range(n_labels):
                            totals[n, i, k] += terms[k] / total
                elif adds == CONDITIONAL:
                    totals[n, i, drawn] += 1
                if adds == VOTES:
                    totals[n, i, drawn] += 1


@inner
def factors(scores, coldness, linear):
    """Turn scores into factors of at most 1, or into their logarithms if not ``linear``."""
    top = -np.inf
    for k in range(len(scores)):
        top = max(top, scores[k])
    top = top if top > -np.inf else 0.0
    for k in range(len(scores)):
        scores[k] = (scores[k] - top) * coldness
        if linear:
            scores[k] = math.exp(scores[k])


@inner
def add_site(table, larger, terms, linear):
    """Write the table with one more site, whose label changes slowest."""
    size = len(table)
    for k in range(len(terms)):
        factor, part = terms[k], larger[k * size : (k + 1) * size]
        if linear:
            for s in range(size):
                part[s] = table[s] * factor
        else:
            for s in range(size):
                part[s] = table[s] + factor


@inner
def multiply(table, pair, n_labels, position, linear):
    """Multiply the table by a pair (label of the last site, label of the frontier's site at a position)."""
    run = n_labels**position
    n_runs = len(table) // (run * n_labels * n_labels)
    for k in range(n_labels):
        for m in range(n_labels):
            factor, begin = pair[k * n_labels + m], k * (len(table) // n_labels) + m * run
            scale(table[begin:], n_runs, run, run * n_labels, factor, linear)


@inner
def scale(table, n_runs, run, stride, factor, linear):
    """Multiply runs of entries by a factor."""
    if run < 8 and linear:  # the long loop inside
        for s in range(run):
            for r in range(n_runs):
                table[r * stride + s] *= factor
        return
    for r in range(n_runs):
        part = table[r * stride : r * stride + run]
        if linear:
            for s in range(run):
                part[s] *= factor
        else:
            for s in range(run):
                part[s] += factor


@inner
def sum_out(table, smaller, n_labels, position, linear):
    """Write the table summed over the label of the frontier's site at a position; scale it if its entries are small."""
    run = n_labels**position
    for r in range(len(smaller) // run):
        part, to = table[r * run * n_labels : (r + 1) * run * n_labels], smaller[r * run : (r + 1) * run]
        for s in range(run):
            if linear:
                total = part[s]
                for k in range(1, n_labels):
                    total += part[s + k * run]
            else:
                total = add_logarithms(part, s, run, n_labels)
            to[s] = total
    top = 0.0
    for s in range(len(smaller)):
        top = max(top, smaller[s])
    if linear and 0 < top < SMALL:
        for s in range(len(smaller)):
            smaller[s] /= top


@inner
def add_logarithms(entry, s, run, n_labels):
    """Return the logarithm of the sum of exponentials of ``n_labels`` entries with stride ``run``."""
    top = entry[s]
    for k in range(1, n_labels):
        top = max(top, entry[s + k * run])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(n_labels):
        total += math.exp(entry[s + k * run] - top)
    return top + math.log(total)
