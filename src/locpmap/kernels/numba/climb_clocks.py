"""Numba version of `reference.climb_clocks`.

A visit costs sites · L² exponentials, a candidate sites · (L + earlier visits of the line).  Memory per thread: a score
per site, label and visit.
"""

import math

import numpy as np

from locpmap.kernels.numba.compiling import allocating, inner, kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score
from locpmap.kernels.numba.gibbs_clusters import draw_label
from locpmap.kernels.numba.noise import site_words, uniform
from locpmap.kernels.numba.perturbing import perturb
from locpmap.kernels.reference.climb_clocks import MAX_CANDIDATES
from locpmap.kernels.reference.noise import CLOCK


@kernel
def climb_clocks(model, plan, perturbation, start, given, max_sweeps, first_image, lo, hi, first_sample, labels):
    """Fill ``labels`` (hi - lo, S, R); return the number of the last sweep that changed a label, (hi - lo, R)."""
    unary, site_id, potts, features, tables = model.unary, model.site_id, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends = model.indptr, model.neighbour, model.edge, model.end
    ptr, sites, parent_slot, block_of = plan.ptr, plan.site, plan.parent_slot, plan.block_of[0]
    n_sites, n_labels, n_samples, n_lines = unary.shape[1], unary.shape[2], labels.shape[2], len(plan.joint)
    _, amount, k0, k1 = perturbation
    longest = 1
    for b in range(n_lines):
        longest = max(longest, ptr[b + 1] - ptr[b])
    sweeps = np.zeros((hi - lo, n_samples), np.int32)
    noisy = np.empty((n_sites, n_labels), unary.dtype)
    y = np.empty(n_sites, np.int32)
    beliefs, pairs = np.empty((longest, n_labels)), np.empty((longest, n_labels, n_labels))
    new, weights = np.empty(n_sites, np.int32), np.empty(n_labels)
    dirty = np.empty(n_lines, np.bool_)
    counts = np.empty((3, n_lines), np.int64)  # visits, revealed clocks and candidates of each line
    local = np.empty((4, n_sites, n_labels))  # by visit of the line
    log_s, log_z = np.empty((4, n_lines)), np.empty((4, n_lines))
    revealed, log_clock = np.empty((4, n_sites), np.int32), np.empty((4, n_lines))
    for n in range(lo, hi):
        for s in range(n_samples):
            image, sample = first_image + n, first_sample + s
            perturb(noisy, y, unary, n, perturbation, start, given, image, sample, site_id)
            for b in range(n_lines):
                dirty[b] = True
                counts[0, b] = counts[1, b] = counts[2, b] = 0
            for sweep in range(1, max_sweeps + 1):
                for b in range(n_lines):
                    if not dirty[b]:
                        continue
                    dirty[b] = False
                    first, length, visit = ptr[b], ptr[b + 1] - ptr[b], counts[0, b]
                    if visit == len(local):
                        local, log_s, log_z = longer(local), longer(log_s), longer(log_z)
                        revealed, log_clock = longer(revealed), longer(log_clock)
                    for j in range(length):
                        i = sites[first + j]
                        for k in range(n_labels):
                            beliefs[j, k] = unary[n, i, k]
                        for slot in range(indptr[i], indptr[i + 1]):
                            other = neighbour[slot]
                            if block_of[other] == b:
                                continue
                            if potts:
                                beliefs[j, y[other]] += potts_weight(features, n, edges[slot])
                                continue
                            for k in range(n_labels):
                                beliefs[j, k] += table_score(features, tables, n, edges[slot], ends[slot], k, y[other])
                        slot = parent_slot[first + j]
                        for k in range(n_labels):
                            beliefs[j, k] /= amount
                            local[visit, i, k] = beliefs[j, k]
                            for m in range(n_labels):
                                if slot >= 0:
                                    of_pair = table_score(features, tables, n, edges[slot], ends[slot], k, m)
                                    pairs[j, m, k] = of_pair / amount
                    log_z[visit, b] = sums(beliefs, pairs, length)
                    if log_z[visit, b] == -np.inf:
                        continue
                    mine = sites[first : first + length]
                    known, log_known = -1, np.inf
                    for r in range(counts[1, b]):
                        bound = log_clock[r, b] + log_z[visit, b] - score(local[visit], pairs, mine, revealed[r])
                        if bound < log_known:
                            known, log_known = r, bound
                    found, waited = False, 0.0
                    while not found and counts[2, b] < MAX_CANDIDATES:
                        group = counts[2, b]
                        counts[2, b] += 1
                        word = site_words(k0, k1, CLOCK, image, sample, site_id[mine[0]], group)[1]
                        waited -= math.log(uniform(word))
                        if math.log(waited) >= log_known:
                            break
                        for j in range(length):
                            word = site_words(k0, k1, CLOCK, image, sample, site_id[mine[j]], group)[0]
                            for k in range(n_labels):
                                weights[k] = beliefs[j, k] + (pairs[j, new[mine[j - 1]], k] if j else 0.0)
                            new[mine[j]] = draw_label(weights, 1.0, word)
                        clock = math.log(waited) + score(local[visit], pairs, mine, new) - log_z[visit, b]
                        found = True
                        for v in range(visit):
                            then = score(local[v], pairs, mine, new) - log_z[v, b]
                            found = found and clock > log_s[v, b] + then
                        for r in range(counts[1, b]):
                            found = found and not equal(mine, new, revealed[r])
                        if found:
                            known, log_known = counts[1, b], math.log(waited)
                            log_clock[known, b] = clock
                            for j in range(length):
                                revealed[known, mine[j]] = new[mine[j]]
                            counts[1, b] += 1
                    if known < 0:
                        continue
                    log_s[visit, b] = log_known
                    counts[0, b] += 1
                    for j in range(length):
                        i = mine[j]
                        if y[i] == revealed[known, i]:
                            continue
                        y[i] = revealed[known, i]
                        sweeps[n - lo, s] = sweep
                        for slot in range(indptr[i], indptr[i + 1]):
                            dirty[block_of[neighbour[slot]]] = True
                    dirty[b] = False
                if sweeps[n - lo, s] < sweep:
                    break
            for i in range(n_sites):
                labels[n - lo, i, s] = y[i]
    return sweeps


@inner
def sums(beliefs, pairs, length):
    """Add to each site's scores the log sums over all later sites; return the log partition."""
    for j in range(length - 1, -1, -1):
        for m in range(beliefs.shape[1] if j else 1):
            top = -np.inf
            for k in range(beliefs.shape[1]):
                top = max(top, beliefs[j, k] + (pairs[j, m, k] if j else 0.0))
            total = 0.0
            for k in range(beliefs.shape[1]):
                total += math.exp(beliefs[j, k] + (pairs[j, m, k] if j else 0.0) - top) if top > -np.inf else 0.0
            log_sum = top + math.log(total) if top > -np.inf else top
            if j:
                beliefs[j - 1, m] += log_sum
    return log_sum


@inner
def score(local, pairs, mine, y):
    """Return the score of a line's labels; local (S, L) and y (S,) are indexed by site."""
    total = 0.0
    for j in range(len(mine)):
        total += local[mine[j], y[mine[j]]]
        if j:
            total += pairs[j, y[mine[j - 1]], y[mine[j]]]
    return total


@inner
def equal(mine, y, z):
    """Return whether two labellings agree on a line."""
    same = True
    for j in range(len(mine)):
        same = same and y[mine[j]] == z[mine[j]]
    return same


@allocating
def longer(old):
    """Return an array of twice the length that begins with the old one."""
    new = np.empty((2 * len(old), *old.shape[1:]), old.dtype)
    to, values = new.ravel(), old.ravel()
    for v in range(len(values)):
        to[v] = values[v]
    return new
